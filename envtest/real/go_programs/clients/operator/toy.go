package main

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

type crd = apiextensionsv1.CustomResourceDefinition

var groupVersion = schema.GroupVersion{Group: "operator.example.com", Version: "v1"}

// Toy is the kind of the operator.
type Toy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ToySpec   `json:"spec,omitempty"`
	Status            ToyStatus `json:"status,omitempty"`
}

// ToySpec is what is wanted.
type ToySpec struct {
	Color string `json:"color,omitempty"`
	Count int64  `json:"count,omitempty"`
}

// ToyStatus is what the operator has made.
type ToyStatus struct {
	Made int64 `json:"made,omitempty"`
}

// ToyList is a list of toys.
type ToyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Toy `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (t *Toy) DeepCopyObject() runtime.Object {
	copied := *t
	t.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	return &copied
}

// DeepCopyObject implements runtime.Object.
func (l *ToyList) DeepCopyObject() runtime.Object {
	copied := ToyList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&copied.ListMeta)
	for _, toy := range l.Items {
		copied.Items = append(copied.Items, *toy.DeepCopyObject().(*Toy))
	}
	return &copied
}

func addToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(groupVersion, &Toy{}, &ToyList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	return nil
}

func toyCRD() *crd {
	type properties = apiextensionsv1.JSONSchemaProps
	object := func(of map[string]properties) properties {
		return properties{Type: "object", Properties: of}
	}
	root := object(map[string]properties{
		"spec": object(map[string]properties{
			"color": {Type: "string"},
			"count": {Type: "integer", Format: "int64", Maximum: ptr.To(10.0)},
		}),
		"status": object(map[string]properties{"made": {Type: "integer", Format: "int64"}}),
	})
	return &crd{
		ObjectMeta: metav1.ObjectMeta{Name: "toys." + groupVersion.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: groupVersion.Group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "toys", Singular: "toy", Kind: "Toy", ListKind: "ToyList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name:         groupVersion.Version,
				Served:       true,
				Storage:      true,
				Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &root},
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}

func rules() []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{groupVersion.Group}, APIVersions: []string{"v1"}, Resources: []string{"toys"}},
	}}
}

// clientConfig names a service; the envtest package puts its own address in the place.
func clientConfig(path string) admissionv1.WebhookClientConfig {
	return admissionv1.WebhookClientConfig{
		Service: &admissionv1.ServiceReference{Name: "operator", Namespace: "default", Path: ptr.To(path)},
	}
}

func mutatingConfiguration() *admissionv1.MutatingWebhookConfiguration {
	return &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "operator.example.com"},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: "mutate.operator.example.com", ClientConfig: clientConfig(mutatePath), Rules: rules(),
			SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

func validatingConfiguration() *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "operator.example.com"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "validate.operator.example.com", ClientConfig: clientConfig(validatePath), Rules: rules(),
			SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}
}
