package main

import (
	"context"

	resource "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

// device is what a selector can see of one.
type device struct {
	Driver                   string
	AllowMultipleAllocations *bool
	Attributes               map[resource.QualifiedName]resource.DeviceAttribute
	Capacity                 map[resource.QualifiedName]resource.DeviceCapacity
}

func evaluate(r *request) answer {
	compiled := selectors.GetOrCompile(r.Expression)
	if compiled.Error != nil {
		return answer{"compileError": compiled.Error.Detail}
	}
	matches, details, err := compiled.DeviceMatches(context.Background(), cel.Device{
		Driver:                   r.Device.Driver,
		AllowMultipleAllocations: r.Device.AllowMultipleAllocations,
		Attributes:               r.Device.Attributes,
		Capacity:                 r.Device.Capacity,
	})
	if err != nil {
		return failed(err)
	}
	return answer{"matches": matches, "cost": *details.ActualCost()}
}
