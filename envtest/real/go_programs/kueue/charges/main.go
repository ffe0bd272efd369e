// Command charges has Kueue say what a pod's claims are charged to a quota.
//
// It reads one JSON object: the Configuration of Kueue, the DeviceClasses, ResourceClaimTemplates and
// ResourceSlices of a cluster, and a pod. It prints the amounts by the names of quota, or why Kueue would not
// admit the pod. Objects are decoded strictly, so that a field that Kueue does not know is an error.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/dra"
)

type question struct {
	Configuration json.RawMessage
	// Queues are objects of Kueue, which are decoded and nothing else.
	Queues    []json.RawMessage
	Classes   []json.RawMessage
	Templates []json.RawMessage
	Slices    []json.RawMessage
	Pod       json.RawMessage
}

type answer struct {
	Charges map[corev1.ResourceName]string `json:"charges"`
	Refused []string                       `json:"refused"`
}

// objects answers reads of what a question holds; everything else that a client can do is missing.
type objects struct {
	client.Client
	classes   map[string]*resourcev1.DeviceClass
	templates map[string]*resourcev1.ResourceClaimTemplate
	slices    []resourcev1.ResourceSlice
}

func (o *objects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch wanted := into.(type) {
	case *resourcev1.DeviceClass:
		if found, ok := o.classes[key.Name]; ok {
			found.DeepCopyInto(wanted)
			return nil
		}
	case *resourcev1.ResourceClaimTemplate:
		if found, ok := o.templates[key.Name]; ok {
			found.DeepCopyInto(wanted)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", into)}, key.Name)
}

// List answers what Kueue's field indexes answer: classes by the extended resource, slices by the driver.
func (o *objects) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	asked := client.ListOptions{FieldSelector: fields.Everything()}
	asked.ApplyOptions(options)
	switch wanted := into.(type) {
	case *resourcev1.ResourceSliceList:
		for _, slice := range o.slices {
			if asked.FieldSelector.Matches(fields.Set{"spec.driver": slice.Spec.Driver}) {
				wanted.Items = append(wanted.Items, slice)
			}
		}
	case *resourcev1.DeviceClassList:
		for _, class := range o.classes {
			name := ptr.Deref(class.Spec.ExtendedResourceName, "")
			if asked.FieldSelector.Matches(fields.Set{"spec.extendedResourceName": name}) {
				wanted.Items = append(wanted.Items, *class)
			}
		}
	default:
		return fmt.Errorf("no %T here", into)
	}
	return nil
}

func decoded[T runtime.Object](codecs serializer.CodecFactory, raw json.RawMessage, into T) (T, error) {
	_, _, err := codecs.UniversalDeserializer().Decode(raw, nil, into)
	return into, err
}

func read(from *question) (*objects, *configapi.Configuration, *corev1.Pod, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, resourcev1.AddToScheme, configapi.AddToScheme, kueue.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, nil, nil, err
		}
	}
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	found := &objects{
		classes: map[string]*resourcev1.DeviceClass{}, templates: map[string]*resourcev1.ResourceClaimTemplate{},
	}
	for _, raw := range from.Queues {
		if _, _, err := codecs.UniversalDeserializer().Decode(raw, nil, nil); err != nil {
			return nil, nil, nil, err
		}
	}
	for _, raw := range from.Classes {
		class, err := decoded(codecs, raw, &resourcev1.DeviceClass{})
		if err != nil {
			return nil, nil, nil, err
		}
		found.classes[class.Name] = class
	}
	for _, raw := range from.Templates {
		template, err := decoded(codecs, raw, &resourcev1.ResourceClaimTemplate{})
		if err != nil {
			return nil, nil, nil, err
		}
		found.templates[template.Name] = template
	}
	for _, raw := range from.Slices {
		slice, err := decoded(codecs, raw, &resourcev1.ResourceSlice{})
		if err != nil {
			return nil, nil, nil, err
		}
		found.slices = append(found.slices, *slice)
	}
	configuration, err := decoded(codecs, from.Configuration, &configapi.Configuration{})
	if err != nil {
		return nil, nil, nil, err
	}
	pod, err := decoded(codecs, from.Pod, &corev1.Pod{})
	return found, configuration, pod, err
}

// charged asks for a pod what Kueue's workload controller asks: by devices, counters, capacities and names in limits.
func charged(found *objects, mappings []configapi.DeviceClassMapping, pod *corev1.Pod) (corev1.ResourceList, field.ErrorList, error) {
	mapper := dra.NewResourceMapper()
	if err := mapper.PopulateFromConfiguration(mappings); err != nil {
		return nil, nil, err
	}
	workload := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{
			Name: kueue.DefaultPodSetName, Count: 1, Template: corev1.PodTemplateSpec{Spec: pod.Spec},
		}}},
	}
	total := corev1.ResourceList{}
	cache := dra.NewResourceSliceCache(found)
	add := func(amounts map[kueue.PodSetReference]corev1.ResourceList) {
		for name, amount := range amounts[kueue.DefaultPodSetName] {
			sum := total[name]
			sum.Add(amount)
			total[name] = sum
		}
	}
	ctx := context.Background()
	devices, refused := dra.GetResourceRequestsForResourceClaimTemplates(ctx, found, cache, mapper, workload)
	if len(refused) > 0 {
		return nil, refused, nil
	}
	add(devices)
	counters, refused := dra.GetCounterResourcesForWorkload(ctx, found, cache, mapper, workload)
	if len(refused) > 0 {
		return nil, refused, nil
	}
	add(counters)
	capacities, refused := dra.DetermineCapacityResourcesForWorkload(ctx, found, cache, mapper, workload)
	if len(refused) > 0 {
		return nil, refused, nil
	}
	add(capacities)
	extended, _, refused := dra.ResolveExtendedResourceQuota(ctx, found, mapper, workload)
	if len(refused) > 0 {
		return nil, refused, nil
	}
	add(extended)
	return total, nil, nil
}

func answered(from *question) (*answer, error) {
	found, configuration, pod, err := read(from)
	if err != nil {
		return nil, err
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(configuration.FeatureGates); err != nil {
		return nil, err
	}
	var mappings []configapi.DeviceClassMapping
	if configuration.Resources != nil {
		mappings = configuration.Resources.DeviceClassMappings
	}
	amounts, refused, err := charged(found, mappings, pod)
	if err != nil {
		return nil, err
	}
	said := &answer{Charges: map[corev1.ResourceName]string{}, Refused: []string{}}
	for name, amount := range amounts {
		said.Charges[name] = amount.String()
	}
	for _, one := range refused {
		said.Refused = append(said.Refused, one.Error())
	}
	return said, nil
}

func main() {
	var from question
	err := json.NewDecoder(os.Stdin).Decode(&from)
	if err == nil {
		var said *answer
		if said, err = answered(&from); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(said)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
