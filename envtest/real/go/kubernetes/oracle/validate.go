package main

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	internal "k8s.io/kubernetes/pkg/apis/resource"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	"k8s.io/kubernetes/pkg/apis/resource/validation"
)

// written runs the hand-written rules, which know the internal types.
func written(object runtime.Object) (field.ErrorList, error) {
	switch object := object.(type) {
	case *internal.ResourceSlice:
		return validation.ValidateResourceSlice(object), nil
	case *internal.DeviceClass:
		return validation.ValidateDeviceClass(object), nil
	case *internal.ResourceClaim:
		return validation.ValidateResourceClaim(object), nil
	case *internal.ResourceClaimTemplate:
		return validation.ValidateResourceClaimTemplate(object), nil
	}
	return nil, fmt.Errorf("%T is not validated here", object)
}

// validate answers with the errors of both kinds of rules: from release to release more of them move
// from functions to declarations on the versioned types.
func validate(raw json.RawMessage) answer {
	object, _, err := legacyscheme.Codecs.UniversalDecoder(internal.SchemeGroupVersion).Decode(raw, nil, nil)
	if err != nil {
		return answer{"errors": []string{err.Error()}}
	}
	found, err := written(object)
	if err != nil {
		return answer{"errors": []string{err.Error()}}
	}
	versioned, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		return answer{"errors": []string{err.Error()}}
	}
	found = append(found, legacyscheme.Scheme.Validate(context.Background(), nil, versioned)...)
	messages := sets.New[string]()
	for _, e := range found {
		if e.Type == field.ErrorTypeInternal {
			continue // a declared rule that belongs to a gate which is off
		}
		messages.Insert(e.Error())
	}
	return answer{"errors": sets.List(messages)}
}
