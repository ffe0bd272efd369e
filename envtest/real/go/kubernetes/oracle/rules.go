package main

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/warning"
)

// internalSchema reads the schema of a CustomResourceDefinition's version.
func internalSchema(raw json.RawMessage) (*apiextensions.JSONSchemaProps, *schema.Structural, error) {
	var versioned apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(raw, &versioned); err != nil {
		return nil, nil, err
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&versioned, &internal, nil); err != nil {
		return nil, nil, err
	}
	structural, err := schema.NewStructural(&internal)
	return &internal, structural, err
}

// ruleCosts are the estimated costs of the rules of a schema and of those below it, by path.
func ruleCosts(path string, s *schema.Structural, declared *apiservercel.DeclType, found map[string][]uint64) {
	if s == nil || declared == nil {
		return
	}
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	results, err := cel.Compile(s, declared, celconfig.PerCallLimit, env, cel.NewExpressionsEnvLoader())
	if err == nil {
		for i, result := range results {
			found[fmt.Sprintf("%s[%d]", path, i)] = []uint64{result.MaxCost, result.MaxCardinality, result.MessageExpressionMaxCost}
		}
	}
	for name, property := range s.Properties {
		if escaped, ok := apiservercel.Escape(name); ok && declared.Fields[escaped] != nil {
			ruleCosts(path+"."+name, &property, declared.Fields[escaped].Type, found)
		}
	}
	ruleCosts(path+"[]", s.Items, declared.ElemType, found)
	if s.AdditionalProperties != nil {
		ruleCosts(path+"{}", s.AdditionalProperties.Structural, declared.ElemType, found)
	}
}

// definitionRules says whether a CustomResourceDefinition with this schema would be accepted.
func definitionRules(r *request) answer {
	internal, structural, err := internalSchema(r.Schema)
	if err != nil {
		return failed(err)
	}
	definition := &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensions.ClusterScoped,
			Names:      apiextensions.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
			Versions:   []apiextensions.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}},
			Version:    "v1",
			Validation: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: internal},
			Conversion: &apiextensions.CustomResourceConversion{Strategy: apiextensions.NoneConverter},
		},
		Status: apiextensions.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}},
	}
	preserve := false
	definition.Spec.PreserveUnknownFields = &preserve
	costs := map[string][]uint64{}
	ruleCosts("", structural, model.SchemaDeclType(structural, true), costs)
	return answer{"errors": sortedErrors(validation.ValidateCustomResourceDefinition(context.Background(), definition)), "costs": costs}
}

func sortedErrors(found field.ErrorList) []string {
	messages := sets.New[string]()
	for _, e := range found {
		messages.Insert(e.Error())
	}
	return sets.List(messages)
}

// warnings collects what a request is warned of.
type warnings []string

func (w *warnings) AddWarning(_, text string) {
	*w = append(*w, text)
}

// evaluateRules applies the rules of a schema to an object, and to the old one that it replaces.
func evaluateRules(r *request) answer {
	_, structural, err := internalSchema(r.Schema)
	if err != nil {
		return failed(err)
	}
	validator := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	if validator == nil {
		return answer{"errors": []string{}}
	}
	var object, old map[string]any
	if err := utiljson.Unmarshal(r.Object, &object); err != nil {
		return failed(err)
	}
	var warned warnings
	ctx := warning.WithWarningRecorder(context.Background(), &warned)
	var found field.ErrorList
	var left int64
	if r.Old == nil {
		found, left = validator.Validate(ctx, nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
	} else {
		if err := utiljson.Unmarshal(r.Old, &old); err != nil {
			return failed(err)
		}
		correlated := common.NewCorrelatedObject(object, old, &model.Structural{Structural: structural})
		found, left = validator.Validate(ctx, nil, structural, object, old, celconfig.RuntimeCELCostBudget, cel.WithRatcheting(correlated))
	}
	return answer{"errors": sortedErrors(found), "left": left, "warnings": sets.List(sets.New(warned...))}
}
