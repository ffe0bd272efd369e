package main

import (
	"context"
	"encoding/json"
	"errors"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes/scheme"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	internaladmission "k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	admissionvalidation "k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
)

// admitted is a write that policies judge.
type admitted struct {
	Group, Version, Kind, Resource, Subresource string
	Namespace, Name, Operation                  string
	User                                        string
	Groups                                      []string
}

// validatePolicy says whether a ValidatingAdmissionPolicy, or a binding, would be accepted.
func validatePolicy(raw json.RawMessage) answer {
	object, _, err := legacyscheme.Codecs.UniversalDecoder(internaladmission.SchemeGroupVersion).Decode(raw, nil, nil)
	if err != nil {
		return failed(err)
	}
	switch object := object.(type) {
	case *internaladmission.ValidatingAdmissionPolicy:
		return answer{"errors": sortedErrors(admissionvalidation.ValidateValidatingAdmissionPolicy(object))}
	case *internaladmission.ValidatingAdmissionPolicyBinding:
		return answer{"errors": sortedErrors(admissionvalidation.ValidateValidatingAdmissionPolicyBinding(object))}
	}
	return failed(errors.New("this is no policy"))
}

// evaluator compiles a policy as the admission plugin does.
func evaluator(policy *admissionv1.ValidatingAdmissionPolicy) (validating.Validator, error) {
	spec := policy.Spec
	all := plugincel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil, HasAuthorizer: true}
	texts := plugincel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil}
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, err
	}
	for _, variable := range spec.Variables {
		compiler.CompileAndStoreVariable(&validating.Variable{Name: variable.Name, Expression: variable.Expression}, all, environment.StoredExpressions)
	}
	conditions := make([]plugincel.ExpressionAccessor, len(spec.MatchConditions))
	for i := range spec.MatchConditions {
		conditions[i] = (*matchconditions.MatchCondition)(&spec.MatchConditions[i])
	}
	validations := make([]plugincel.ExpressionAccessor, len(spec.Validations))
	messages := make([]plugincel.ExpressionAccessor, len(spec.Validations))
	for i, one := range spec.Validations {
		validations[i] = &validating.ValidationCondition{Expression: one.Expression, Message: one.Message, Reason: one.Reason}
		if one.MessageExpression != "" {
			messages[i] = &validating.MessageExpressionCondition{MessageExpression: one.MessageExpression}
		}
	}
	annotations := make([]plugincel.ExpressionAccessor, len(spec.AuditAnnotations))
	for i, one := range spec.AuditAnnotations {
		annotations[i] = &validating.AuditAnnotationCondition{Key: one.Key, ValueExpression: one.ValueExpression}
	}
	var matcher matchconditions.Matcher
	if len(conditions) > 0 {
		matcher = matchconditions.NewMatcher(compiler.CompileCondition(conditions, all, environment.StoredExpressions), spec.FailurePolicy, "policy", "validate", policy.Name)
	}
	return validating.NewValidator(
		compiler.CompileCondition(validations, all, environment.StoredExpressions), matcher,
		compiler.CompileCondition(annotations, all, environment.StoredExpressions),
		compiler.CompileCondition(messages, texts, environment.StoredExpressions), spec.FailurePolicy, nil,
	), nil
}

// paramInformer gives a policy its parameters.
type paramInformer struct {
	cache.SharedIndexInformer
	indexer cache.Indexer
}

func (p *paramInformer) Informer() cache.SharedIndexInformer { return p }
func (p *paramInformer) HasSynced() bool                     { return true }
func (p *paramInformer) Lister() cache.GenericLister {
	return cache.NewGenericLister(p.indexer, schema.GroupResource{Resource: "params"})
}

// scoped says whether parameters belong to a namespace.
type scoped meta.RESTScopeName

func (s scoped) Name() meta.RESTScopeName { return meta.RESTScopeName(s) }

func typed(raw json.RawMessage) (runtime.Object, error) {
	if raw == nil {
		return nil, nil
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err == nil {
		return object, nil
	}
	unknown := &unstructured.Unstructured{}
	return unknown, unknown.UnmarshalJSON(raw)
}

// admit says what a policy with its binding makes of a write.
func admit(r *request) answer {
	var policy admissionv1.ValidatingAdmissionPolicy
	var binding admissionv1.ValidatingAdmissionPolicyBinding
	for target, raw := range map[runtime.Object]json.RawMessage{&policy: r.Policy, &binding: r.Binding} {
		if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), raw, target); err != nil {
			return failed(err)
		}
	}
	legacyscheme.Scheme.Default(&policy)
	legacyscheme.Scheme.Default(&binding)
	compiled, err := evaluator(&policy)
	if err != nil {
		return failed(err)
	}
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if r.Namespace != nil {
		namespaces.Add(r.Namespace)
	}
	params := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, raw := range r.Params {
		param, err := typed(raw)
		if err != nil {
			return failed(err)
		}
		param.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		params.Add(param)
	}
	object, err := typed(r.Object)
	if err != nil {
		return failed(err)
	}
	old, err := typed(r.Old)
	if err != nil {
		return failed(err)
	}
	w := r.Write
	attributes := admission.NewAttributesRecord(
		object, old, schema.GroupVersionKind{Group: w.Group, Version: w.Version, Kind: w.Kind}, w.Namespace, w.Name,
		schema.GroupVersionResource{Group: w.Group, Version: w.Version, Resource: w.Resource}, w.Subresource,
		admission.Operation(w.Operation), nil, false, &user.DefaultInfo{Name: w.User, Groups: w.Groups},
	)
	hook := validating.PolicyHook{
		Policy: &policy, Bindings: []*admissionv1.ValidatingAdmissionPolicyBinding{&binding}, Evaluator: compiled,
		ParamInformer: &paramInformer{indexer: params}, ParamScope: scoped(r.ParamScope),
	}
	allow := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "admin" || a.GetVerb() == "get" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "no rule", nil
	})
	matcher := matching.NewMatcher(listers.NewNamespaceLister(namespaces), nil)
	dispatcher := validating.NewDispatcher(allow, generic.NewPolicyMatcher(matcher))
	var warned warnings
	ctx := warning.WithWarningRecorder(context.Background(), &warned)
	err = dispatcher.Dispatch(ctx, attributes, admission.NewObjectInterfacesFromScheme(scheme.Scheme), []validating.PolicyHook{hook})
	result := answer{"warnings": append([]string{}, warned...)}
	if err == nil {
		return result
	}
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return failed(err)
	}
	result["code"], result["reason"], result["message"] = status.ErrStatus.Code, status.ErrStatus.Reason, status.ErrStatus.Message
	return result
}

var _ = core.NamespaceDefault
