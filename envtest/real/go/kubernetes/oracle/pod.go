package main

import (
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	endpoints "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/core/pod"
)

func init() {
	// As kube-apiserver does when it is started with --allow-privileged.
	capabilities.Setup(true, 0)
}

// registry is how the API server handles a resource on create and on update.
type registry struct {
	group, resource string
	strategy        interface {
		rest.RESTCreateStrategy
		rest.RESTUpdateStrategy
	}
}

// decoded reads an object and fills in the defaults, as the API server does with a body.
func decoded(raw json.RawMessage) (runtime.Object, *registry, error) {
	object, kind, err := legacyscheme.Codecs.UniversalDecoder(core.SchemeGroupVersion, apps.SchemeGroupVersion).Decode(raw, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	switch object.(type) {
	case *core.Pod:
		return object, &registry{"", "pods", pod.Strategy}, nil
	case *apps.Deployment:
		return object, &registry{apps.GroupName, "deployments", deployment.Strategy}, nil
	case *apps.DaemonSet:
		return object, &registry{apps.GroupName, "daemonsets", daemonset.Strategy}, nil
	}
	return nil, nil, fmt.Errorf("%s has no pods", kind)
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

// pods does with a pod, or with a workload that makes pods, what the API server's registry does before it
// stores one: the strategy of create, or that of update where there is an old one.
func pods(raw, old json.RawMessage) answer {
	wanted, served, err := decoded(raw)
	if err != nil {
		return failed(err)
	}
	object, err := meta.Accessor(wanted)
	if err != nil {
		return failed(err)
	}
	ctx := endpoints.WithNamespace(endpoints.NewContext(), object.GetNamespace())
	ctx = endpoints.WithRequestInfo(ctx, &endpoints.RequestInfo{
		IsResourceRequest: true, APIGroup: served.group, APIVersion: "v1", Resource: served.resource,
	})
	if old == nil {
		rest.FillObjectMetaSystemFields(object)
		err = rest.BeforeCreate(served.strategy, ctx, wanted)
	} else {
		stored, _, problem := decoded(old)
		if problem != nil {
			return failed(problem)
		}
		err = rest.BeforeUpdate(served.strategy, ctx, wanted, stored)
	}
	if err != nil {
		return refusals(err)
	}
	encoded, err := runtime.Encode(legacyscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion), wanted)
	if err != nil {
		return failed(err)
	}
	var stored struct{ Spec json.RawMessage }
	if err := json.Unmarshal(encoded, &stored); err != nil {
		return failed(err)
	}
	return answer{"spec": stored.Spec}
}
