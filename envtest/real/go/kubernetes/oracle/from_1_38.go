//go:build kubernetes_1_38

package main

import (
	"context"

	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	draapi "k8s.io/dynamic-resource-allocation/api"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// share records a share of a device that is in use.
func share(state *structured.AllocatedState, id structured.DeviceID, _ *resource.DeviceRequestAllocationResult) {
	if state.AllocatedSharedDeviceIDs == nil {
		state.AllocatedSharedDeviceIDs = sets.New[structured.DeviceID]()
	}
	state.AllocatedSharedDeviceIDs.Insert(id)
}

// converted are the slices as the scheduler's informer has them.
func converted(slices []*resource.ResourceSlice) ([]*draapi.ResourceSlice, error) {
	var found []*draapi.ResourceSlice
	for _, slice := range slices {
		var one draapi.ResourceSlice
		if err := draapi.Convert_v1_ResourceSlice_To_api_ResourceSlice(slice, &one, nil); err != nil {
			return nil, err
		}
		found = append(found, &one)
	}
	return found, nil
}

func newAllocator(ctx context.Context, state structured.AllocatedState, classes classLister, slices []*resource.ResourceSlice) (structured.Allocator, error) {
	found, err := converted(slices)
	if err != nil {
		return nil, err
	}
	return structured.NewAllocator(ctx, gates, state, classes, found, selectors)
}

// celDevice is the device as selectors get it: a part of a slice.
func celDevice(d *device) (cel.Device, error) {
	only := resource.Device{
		Name:                     "device",
		AllowMultipleAllocations: d.AllowMultipleAllocations,
		Attributes:               d.Attributes,
		Capacity:                 d.Capacity,
	}
	slice := &resource.ResourceSlice{Spec: resource.ResourceSliceSpec{Driver: d.Driver, Devices: []resource.Device{only}}}
	found, err := converted([]*resource.ResourceSlice{slice})
	if err != nil {
		return cel.Device{}, err
	}
	in := found[0].Spec.Devices[0]
	return cel.Device{
		Driver:                   d.Driver,
		AllowMultipleAllocations: in.AllowMultipleAllocations,
		LookupUniqueString:       found[0].LookupUniqueString,
		Attributes:               in.Attributes,
		Capacity:                 in.Capacity,
	}, nil
}
