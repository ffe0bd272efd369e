package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	// CRI-O keeps whole documents in annotations of a container.
	mostStateBytes  = 4 << 20
	mostCgroupBytes = 16 << 10
	// What the plugin takes at most.
	mostLineBytes = 64 << 10
	// Names of Kubernetes have 253 characters at the most; what is longer names no container.
	mostAnnotationBytes = 1024
	namesPrefix         = "io.kubernetes."
	protocol            = 1
)

// The state of a container, as the OCI runtime specification has it; what else it holds is of no use here.
type state struct {
	Version     string            `json:"ociVersion"`
	ID          string            `json:"id"`
	Status      string            `json:"status"`
	Pid         int               `json:"pid"`
	Bundle      string            `json:"bundle"`
	Annotations map[string]string `json:"annotations"`
}

type container struct {
	state  state
	cgroup string
}

// Read the container's state, and where the kernel has the process that becomes its first.
func readContainer(stdin io.Reader) (container, error) {
	var found container
	text, err := readAtMost(stdin, mostStateBytes)
	if err != nil {
		return found, refusal{fmt.Sprintf("cannot read the container's state: %v", err), runtimeWayOut}
	}
	if err := json.Unmarshal(text, &found.state); err != nil {
		return found, refusal{fmt.Sprintf("the container's state is not as the OCI runtime specification describes it: %v", err), runtimeWayOut}
	}
	if found.state.Pid < 1 || found.state.ID == "" {
		return found, refusal{"the container's state has no process or no container id", runtimeWayOut}
	}
	for key, value := range found.state.Annotations {
		if !strings.HasPrefix(key, namesPrefix) || len(value) > mostAnnotationBytes {
			delete(found.state.Annotations, key)
		}
	}
	found.cgroup, err = cgroupOf(found.state.Pid)
	return found, err
}

const runtimeWayOut = "check what the node's container runtime passes to a createRuntime hook"

func cgroupOf(pid int) (string, error) {
	path := fmt.Sprintf("/proc/%d/cgroup", pid)
	file, err := os.Open(path)
	if err == nil {
		defer file.Close()
		var text []byte
		if text, err = readAtMost(file, mostCgroupBytes); err == nil && len(text) > 0 {
			return string(text), nil
		}
	}
	if err == nil {
		err = fmt.Errorf("it is empty")
	}
	return "", refusal{
		fmt.Sprintf("the container's control group is not known: cannot read %s: %v", path, err),
		"check whether the container has ended, and whether its runtime runs hooks on this node itself",
	}
}

func readAtMost(from io.Reader, most int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("there are more than %d bytes", most)
	}
	return text, err
}

// The line that the plugin is told.
func request(given arguments, found container) ([]byte, error) {
	line, err := json.Marshal(struct {
		Version int    `json:"version"`
		Claim   string `json:"claim"`
		Device  string `json:"device"`
		State   state  `json:"state"`
		Cgroup  string `json:"cgroup"`
	}{protocol, given.claim, given.device, found.state, found.cgroup})
	if err == nil && len(line) >= mostLineBytes {
		err = fmt.Errorf("its annotations that begin with %s are too long", namesPrefix)
	}
	if err != nil {
		return nil, refusal{fmt.Sprintf("the container cannot be told of: %v", err), "give its pod fewer annotations"}
	}
	return append(line, '\n'), nil
}
