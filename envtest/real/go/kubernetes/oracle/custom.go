package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	crvalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	endpoints "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

var (
	definitions      = runtime.NewScheme()
	definitionCodecs = serializer.NewCodecFactory(definitions)
	// shown is the kind of all custom objects in requests.
	shown = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
)

func init() {
	install.Install(definitions)
}

// fieldErrors are the errors with their types, each as [field, type, text after the field].
func fieldErrors(found field.ErrorList) [][]string {
	all := [][]string{}
	for _, e := range found {
		all = append(all, []string{e.Field, string(e.Type), e.ErrorBody()})
	}
	return all
}

func decodedDefinition(raw json.RawMessage) (*apiextensions.CustomResourceDefinition, error) {
	object, _, err := definitionCodecs.UniversalDecoder(apiextensions.SchemeGroupVersion).Decode(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	crd, ok := object.(*apiextensions.CustomResourceDefinition)
	if !ok {
		return nil, fmt.Errorf("%T is not a CustomResourceDefinition", object)
	}
	return crd, nil
}

// definition does with a CustomResourceDefinition what the API server's registry does before it stores one:
// the strategy of create, or that of update where there is an old one.
func definition(raw, old json.RawMessage) (given answer) {
	defer func() {
		// Some definitions without a schema make the API server panic, which answers the request with 500.
		if panicked := recover(); panicked != nil {
			given = answer{"panic": fmt.Sprint(panicked)}
		}
	}()
	crd, err := decodedDefinition(raw)
	if err != nil {
		return failed(err)
	}
	strategy := customresourcedefinition.NewStrategy(definitions)
	ctx := endpoints.NewContext()
	var found field.ErrorList
	var warnings []string
	if old == nil {
		rest.FillObjectMetaSystemFields(crd)
		strategy.PrepareForCreate(ctx, crd)
		found = strategy.Validate(ctx, crd)
		warnings = strategy.WarningsOnCreate(ctx, crd)
	} else {
		stored, err := decodedDefinition(old)
		if err != nil {
			return failed(err)
		}
		strategy.PrepareForUpdate(ctx, crd, stored)
		found = strategy.ValidateUpdate(ctx, crd, stored)
		warnings = strategy.WarningsOnUpdate(ctx, crd, stored)
	}
	if len(found) > 0 {
		return answer{"errors": fieldErrors(found), "warnings": warnings}
	}
	encoded, err := runtime.Encode(definitionCodecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion), crd)
	if err != nil {
		return failed(err)
	}
	var written struct{ Spec, Status json.RawMessage }
	if err := json.Unmarshal(encoded, &written); err != nil {
		return failed(err)
	}
	return answer{"spec": written.Spec, "status": written.Status, "warnings": warnings}
}

// coerced prunes and defaults a custom object as the API server does with a body; it returns the unknown fields.
func coerced(object *unstructured.Unstructured, s *structuralschema.Structural) ([]string, error) {
	unknown := pruning.PruneWithOptions(object.Object, s, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(object.Object, s)
	problem, paths := objectmeta.CoerceWithOptions(nil, object.Object, s, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if problem != nil {
		return nil, problem
	}
	defaulting.Default(object.Object, s)
	return append(unknown, paths...), nil
}

func decodedCustom(raw json.RawMessage) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	return object, utiljson.Unmarshal(raw, &object.Object)
}

// custom does with an object of a CustomResourceDefinition with this schema what the API server does before it
// stores one, on create or, where there is an old one, on update.
func custom(r *request) answer {
	var versioned apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(r.Schema, &versioned); err != nil {
		return failed(err)
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&versioned, &internal, nil); err != nil {
		return failed(err)
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		return failed(err)
	}
	if wrong := structuralschema.ValidateStructural(nil, structural); len(wrong) > 0 {
		return failed(wrong.ToAggregate())
	}
	if err := defaulting.PruneDefaults(structural); err != nil {
		return failed(err)
	}
	validator, _, err := crvalidation.NewSchemaValidator(&internal)
	if err != nil {
		return failed(err)
	}
	object, err := decodedCustom(r.Object)
	if err != nil {
		return failed(err)
	}
	unknown, err := coerced(object, structural)
	if err != nil {
		return answer{"refused": err.Error()}
	}
	strategy := customresource.NewStrategy(definitions, true, shown, validator, nil, structural, nil, r.Scale, nil)
	ctx := endpoints.WithNamespace(endpoints.NewContext(), "default")
	var found field.ErrorList
	if r.Old == nil {
		found = strategy.Validate(ctx, object)
	} else {
		old, err := decodedCustom(r.Old)
		if err != nil {
			return failed(err)
		}
		found = strategy.ValidateUpdate(ctx, object, old)
	}
	if accessor, err := meta.Accessor(object); err != nil || accessor == nil {
		return failed(errors.Join(err, errors.New("the object has no metadata")))
	}
	return answer{"object": object.Object, "unknown": unknown, "errors": fieldErrors(found)}
}
