package main

import (
	"context"
	"fmt"

	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// selectors caches compiled expressions as the scheduler does, under the gates that are on by default.
var selectors = cel.NewCache(1000, cel.Features{EnableConsumableCapacity: true})

// gates are the allocator's features that are on by default.
var gates = structured.Features{
	AdminAccess:            true,
	ConsumableCapacity:     true,
	DeviceBindingAndStatus: true,
	DeviceTaints:           true,
	PartitionableDevices:   true,
	PrioritizedList:        true,
}

// classLister gives the allocator the classes of one request.
type classLister []*resource.DeviceClass

func (l classLister) List() ([]*resource.DeviceClass, error) {
	return l, nil
}

func (l classLister) Get(name string) (*resource.DeviceClass, error) {
	for _, class := range l {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("device class %q not found", name)
}

// inUse is what the allocated claims hold; admin access holds nothing.
func inUse(claims []*resource.ResourceClaim) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:   sets.New[structured.DeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.AdminAccess != nil && *result.AdminAccess {
				continue
			}
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if result.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			share(&state, id, &result)
			state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
		}
	}
	return state
}

func allocate(r *request) answer {
	ctx := context.Background()
	allocator, err := newAllocator(ctx, inUse(r.Allocated), classLister(r.Classes), r.Slices)
	if err != nil {
		return failed(err)
	}
	results, err := allocator.Allocate(ctx, r.Node, r.Claims)
	if err != nil {
		return failed(err)
	}
	if results == nil {
		return answer{"none": true}
	}
	return answer{"results": results}
}
