package main

import (
	"encoding/json"
	"errors"
	"fmt"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	endpoints "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	internal "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/registry/core/pod"
)

func init() {
	// As kube-apiserver does when it is started with --allow-privileged.
	capabilities.Setup(true, 0)
}

// decodedPod reads a pod and fills in the defaults, as the API server does with a body.
func decodedPod(raw json.RawMessage) (*internal.Pod, error) {
	object, _, err := legacyscheme.Codecs.UniversalDecoder(internal.SchemeGroupVersion).Decode(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	decoded, isPod := object.(*internal.Pod)
	if !isPod {
		return nil, fmt.Errorf("%T is no pod", object)
	}
	return decoded, nil
}

// refusals are the causes that the API server would give, each as "field: message".
func refusals(err error) answer {
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Details == nil {
		return failed(err)
	}
	messages := sets.New[string]()
	for _, cause := range status.ErrStatus.Details.Causes {
		messages.Insert(cause.Field + ": " + cause.Message)
	}
	return answer{"errors": sets.List(messages)}
}

// pods does with a pod what the API server's registry does before it stores one: the strategy of create,
// or that of update where there is an old pod.
func pods(raw, old json.RawMessage) answer {
	wanted, err := decodedPod(raw)
	if err != nil {
		return failed(err)
	}
	ctx := endpoints.WithNamespace(endpoints.NewContext(), wanted.Namespace)
	ctx = endpoints.WithRequestInfo(ctx, &endpoints.RequestInfo{IsResourceRequest: true, APIVersion: "v1", Resource: "pods"})
	if old == nil {
		rest.FillObjectMetaSystemFields(wanted)
		err = rest.BeforeCreate(pod.Strategy, ctx, wanted)
	} else {
		stored, problem := decodedPod(old)
		if problem != nil {
			return failed(problem)
		}
		err = rest.BeforeUpdate(pod.Strategy, ctx, wanted, stored)
	}
	if err != nil {
		return refusals(err)
	}
	encoded, err := runtime.Encode(legacyscheme.Codecs.LegacyCodec(core.SchemeGroupVersion), wanted)
	if err != nil {
		return failed(err)
	}
	var stored struct{ Spec json.RawMessage }
	if err := json.Unmarshal(encoded, &stored); err != nil {
		return failed(err)
	}
	return answer{"spec": stored.Spec}
}
