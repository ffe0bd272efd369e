//go:build !kubernetes_1_38

package main

import (
	"context"

	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// share records a share of a device that is in use.
func share(state *structured.AllocatedState, id structured.DeviceID, result *resource.DeviceRequestAllocationResult) {
	if state.AllocatedSharedDeviceIDs == nil {
		state.AllocatedSharedDeviceIDs = sets.New[structured.SharedDeviceID]()
	}
	state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
}

func newAllocator(ctx context.Context, state structured.AllocatedState, classes classLister, slices []*resource.ResourceSlice) (structured.Allocator, error) {
	return structured.NewAllocator(ctx, gates, state, classes, slices, selectors)
}

// celDevice is the device as selectors get it.
func celDevice(d *device) (cel.Device, error) {
	return cel.Device{
		Driver:                   d.Driver,
		AllowMultipleAllocations: d.AllowMultipleAllocations,
		Attributes:               d.Attributes,
		Capacity:                 d.Capacity,
	}, nil
}
