// Command oracle says what Kubernetes itself makes of DRA objects. It reads one JSON request a line
// from stdin and writes one JSON answer a line to stdout, in the same order:
//
//	{"op":"allocate","node":Node,"slices":[ResourceSlice],"classes":[DeviceClass],"allocated":[ResourceClaim],"claims":[ResourceClaim]}
//	    {"results":[AllocationResult]}, one for each of claims; {"none":true} if they do not fit; {"error":"..."}
//	{"op":"cel","expression":"...","device":{"driver":"...","attributes":{},"capacity":{},"allowMultipleAllocations":false}}
//	    {"matches":bool,"cost":n}; {"compileError":"..."}; {"error":"..."}
//	{"op":"validate","object":a resource.k8s.io/v1 ResourceSlice, DeviceClass, ResourceClaim or ResourceClaimTemplate}
//	    {"errors":["field: message"]}
//	{"op":"pod","object":Pod, Deployment or DaemonSet,"old":what it replaces, absent on create}
//	    {"errors":["field: message"]}; {"spec":the spec that would be stored}; {"error":"..."}
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	core "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"
)

const longestLineBytes = 256 << 20

// request is the union of what the operations read.
type request struct {
	Op string

	Node      *core.Node
	Slices    []*resource.ResourceSlice
	Classes   []*resource.DeviceClass
	Allocated []*resource.ResourceClaim
	Claims    []*resource.ResourceClaim

	Expression string
	Device     device

	Object json.RawMessage
	Old    json.RawMessage
}

type answer map[string]any

func failed(err error) answer {
	return answer{"error": err.Error()}
}

func answerTo(line []byte) answer {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return failed(fmt.Errorf("the request is not understood: %w", err))
	}
	switch r.Op {
	case "allocate":
		return allocate(&r)
	case "cel":
		return evaluate(&r)
	case "validate":
		return validate(r.Object)
	case "pod":
		return pods(r.Object, r.Old)
	}
	return failed(fmt.Errorf("unknown op %q", r.Op))
}

func main() {
	// What the registry finds remarkable in objects that are wrong on purpose is of no use to anybody.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	requests := bufio.NewScanner(os.Stdin)
	requests.Buffer(nil, longestLineBytes)
	answers := json.NewEncoder(os.Stdout)
	for requests.Scan() {
		if err := answers.Encode(answerTo(requests.Bytes())); err != nil {
			fmt.Fprintln(os.Stderr, "cannot write the answer:", err)
			os.Exit(1)
		}
	}
	if err := requests.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "cannot read a request:", err)
		os.Exit(1)
	}
}
