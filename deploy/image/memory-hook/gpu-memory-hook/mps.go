package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const (
	mpsCommand       = "mps"
	pipesInContainer = "/tmp/nvidia-mps"
	metadataFolder   = "/var/run/kubernetes.io/dra-device-attributes/"
	metadataFile     = "/gpu.nvidia.com-metadata.json"
)

// What a container's config.json (OCI runtime specification) says of its devices.
type config struct {
	Mounts []struct{ Destination, Source string }
	Hooks  struct {
		CreateRuntime []struct {
			Path string
			Args []string
		}
	}
}

// Refuse a container in which CUDA would not show all devices that it got.
//
// A CUDA process is the client of the one MPS daemon whose pipes are mounted, and sees only the devices of that
// daemon. Each MPS device has this hook with its request and its daemon's pipes; of several mounts at one path
// the last one counts. Requests without the hook are known by their metadata.
func checkMps(stdin io.Reader) error {
	var found state
	var made config
	err := json.NewDecoder(io.LimitReader(stdin, mostStateBytes)).Decode(&found)
	if err == nil {
		var text []byte
		if text, err = os.ReadFile(filepath.Join(found.Bundle, "config.json")); err == nil {
			err = json.Unmarshal(text, &made)
		}
	}
	if err != nil {
		return refusal{fmt.Sprintf("the container's configuration cannot be read: %v", err), runtimeWayOut}
	}
	pipes := ""
	for _, mount := range made.Mounts {
		if mount.Destination == pipesInContainer {
			pipes = mount.Source
		}
	}
	shown, hidden, clients, own := "", []string{}, map[string]bool{}, ""
	for _, hook := range made.Hooks.CreateRuntime {
		if len(hook.Args) == 4 && hook.Args[1] == mpsCommand {
			// The plugin's own folder has both, as hook/<version>/gpu-memory-hook and <boot id>/metadata/.
			own = filepath.Join(hook.Path, "../../..")
			request := strings.TrimPrefix(hook.Args[2], "--request=")
			if clients[request] = true; hook.Args[3] == "--pipes="+pipes {
				shown = request
			} else {
				hidden = append(hidden, request)
			}
		}
	}
	for _, mount := range made.Mounts {
		path, isMetadata := strings.CutSuffix(mount.Destination, metadataFile)
		request := strings.TrimPrefix(path, metadataFolder)
		// What the pod itself mounts there is not opened: a pipe, a device, or a file of a terabyte.
		if isMetadata && isMetadataOf(own, mount.Source) && !clients[request] && isForCuda(mount.Source) {
			hidden = append(hidden, request)
		}
	}
	if len(hidden) == 0 {
		return nil
	}
	return said{fmt.Sprintf("%s is used through MPS, so CUDA would hide %s from the container: "+
		"give each container one of the two (resources.claims[].request) (permanent)", named(shown), named(hidden[0]))}
}

// Whether a file lies in the folder of metadata of any boot, in the plugin's own folder.
func isMetadataOf(own, file string) bool {
	folder := filepath.Dir(file)
	return filepath.Base(folder) == "metadata" && filepath.Dir(filepath.Dir(folder)) == own
}

// Whether the plugin's file tells of a device that CUDA would show without MPS, and that is not only looked at.
func isForCuda(file string) bool {
	text, err := os.ReadFile(file)
	for _, other := range []string{`"type":{"string":"vfio"}`, `"type":{"string":"vgpu"}`, `"adminAccess":`} {
		if err != nil || strings.Contains(string(text), other) {
			return false
		}
	}
	return true
}

// A request in words, which is resourceclaims/CLAIM/REQUEST or resourceclaimtemplates/NAME/REQUEST.
func named(request string) string {
	parts := strings.Split(request, "/")
	if len(parts) != 3 {
		return "a device of another request"
	}
	return fmt.Sprintf("request %s of claim %s", parts[2], parts[1])
}
