package main

import (
	"context"

	resource "k8s.io/api/resource/v1"
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
	input, err := celDevice(&r.Device)
	if err != nil {
		return failed(err)
	}
	matches, details, err := compiled.DeviceMatches(context.Background(), input)
	if err != nil {
		return failed(err)
	}
	return answer{"matches": matches, "cost": *details.ActualCost()}
}
