/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package structured_test

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
)

const (
	benchDriver = "gpu.example.com"
	benchNodes  = 100
	gpusPerNode = 8
	// devicesPerSlice is the limit of the API for devices which consume counters.
	devicesPerSlice = 64
)

// benchClasses is a lister with a single class which matches all devices by an attribute.
type benchClasses struct{ class *resourceapi.DeviceClass }

func (c benchClasses) List() ([]*resourceapi.DeviceClass, error) {
	return []*resourceapi.DeviceClass{c.class}, nil
}

func (c benchClasses) Get(name string) (*resourceapi.DeviceClass, error) { return c.class, nil }

// benchDevice has as many attributes and capacities as GPU drivers publish.
func benchDevice(name string, gpu int) resourceapi.Device {
	device := resourceapi.Device{
		Name: name,
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"type":                  {StringValue: ptr.To("partition")},
			"index":                 {IntValue: ptr.To(int64(gpu))},
			"cudaComputeCapability": {VersionValue: ptr.To("9.0.0")},
			"driverVersion":         {VersionValue: ptr.To("580.95.5")},
			"cudaDriverVersion":     {VersionValue: ptr.To("13.0.0")},
		},
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			"memory":          {Value: resource.MustParse("9984Mi")},
			"multiprocessors": {Value: resource.MustParse("16")},
		},
	}
	for _, attribute := range []resourceapi.QualifiedName{
		"parentUUID", "profile", "productName", "architecture", "memoryIsolation", "resource.kubernetes.io/pcieRoot",
	} {
		device.Attributes[attribute] = resourceapi.DeviceAttribute{StringValue: ptr.To("some text")}
	}
	return device
}

// benchSlices returns the slices of a node. Each GPU has as many devices as sizes has entries. With counters,
// device i consumes sizes[i] from one of the four counters of its GPU, which hold two each.
func benchSlices(node string, sizes []int64, counters bool) []*resourceapi.ResourceSlice {
	var counterSets []resourceapi.CounterSet
	var devices []resourceapi.Device
	for gpu := range gpusPerNode {
		set := resourceapi.CounterSet{Name: fmt.Sprintf("gpu-%d", gpu), Counters: map[string]resourceapi.Counter{}}
		for i := range 4 {
			set.Counters[fmt.Sprintf("memory-slice-%d", 2*i)] = resourceapi.Counter{Value: resource.MustParse("2")}
		}
		counterSets = append(counterSets, set)
		for i, size := range sizes {
			device := benchDevice(fmt.Sprintf("gpu-%d-partition-%d", gpu, i), gpu)
			if counters {
				device.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{
					CounterSet: set.Name,
					Counters: map[string]resourceapi.Counter{
						fmt.Sprintf("memory-slice-%d", 2*(i%4)): {Value: *resource.NewQuantity(size, resource.DecimalSI)},
					},
				}}
			}
			devices = append(devices, device)
		}
	}
	var specs []resourceapi.ResourceSliceSpec
	if counters {
		specs = append(specs, resourceapi.ResourceSliceSpec{SharedCounters: counterSets})
	}
	for start := 0; start < len(devices); start += devicesPerSlice {
		specs = append(specs, resourceapi.ResourceSliceSpec{Devices: devices[start:min(start+devicesPerSlice, len(devices))]})
	}
	slices := make([]*resourceapi.ResourceSlice, len(specs))
	for i, spec := range specs {
		spec.Driver = benchDriver
		spec.NodeName = &node
		spec.Pool = resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: int64(len(specs))}
		slices[i] = &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", node, i)}, Spec: spec}
	}
	return slices
}

// BenchmarkAllocateOnNodes does for each pod what the scheduler does: it creates an allocator and calls
// Allocate for each node. One of the nodes gets the pod. The slices never change.
func BenchmarkAllocateOnNodes(b *testing.B) {
	class := &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "partition"},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf("device.driver == '%s' && device.attributes['%s'].type == 'partition'", benchDriver, benchDriver),
		}}}},
	}
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "default"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "partition",
			Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: class.Name, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
			},
		}}}},
	}
	// The features which are enabled by default in 1.37. They select the incubating allocator.
	features := structured.Features{
		AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
		PartitionableDevices: true, PrioritizedList: true,
	}
	for _, bench := range []struct {
		name     string
		sizes    []int64
		counters bool
	}{
		{name: "1-device-per-GPU", sizes: []int64{1}},
		{name: "7-devices-per-GPU", sizes: []int64{1, 1, 1, 1, 1, 1, 1}},
		{name: "13-devices-per-GPU", sizes: []int64{1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2}},
		{name: "13-devices-per-GPU-with-counters", sizes: []int64{1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2}, counters: true},
	} {
		var nodes []*v1.Node
		var slices []*resourceapi.ResourceSlice
		for i := range benchNodes {
			name := fmt.Sprintf("node-%d", i)
			nodes = append(nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
			slices = append(slices, benchSlices(name, bench.sizes, bench.counters)...)
		}
		b.Run(bench.name, func(b *testing.B) {
			ctx := context.Background()
			cache := cel.NewCache(10, cel.Features{EnableConsumableCapacity: true})
			var state structured.AllocatedState
			b.ReportAllocs()
			for pod := 0; b.Loop(); pod++ {
				// Start again with an empty cluster once each node has four pods.
				if pod%(4*benchNodes) == 0 {
					state = structured.AllocatedState{
						AllocatedDevices:         sets.New[structured.DeviceID](),
						AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
						AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
					}
				}
				allocator, err := structured.NewAllocator(ctx, features, state, benchClasses{class}, slices, cache)
				if err != nil {
					b.Fatalf("unexpected error creating the allocator: %v", err)
				}
				for i, node := range nodes {
					result, err := allocator.Allocate(ctx, node, []*resourceapi.ResourceClaim{claim})
					if err != nil || len(result) != 1 {
						b.Fatalf("node %s: expected one allocation, got %v, error %v", node.Name, result, err)
					}
					if i == pod%benchNodes {
						device := result[0].Devices.Results[0]
						state.AllocatedDevices.Insert(structured.MakeDeviceID(device.Driver, device.Pool, device.Device))
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/benchNodes, "µs/node")
		})
	}
}
