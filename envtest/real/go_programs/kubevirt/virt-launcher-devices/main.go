// Command virt-launcher-devices does what KubeVirt's virt-launcher does with the devices of claims.
//
// It reads a VirtualMachineInstance strictly, as the API server does with validation of fields, finds the
// metadata of its devices below a folder with KubeVirt's own code, and prints the host devices of the libvirt
// domain as JSON.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/kubevirt/pkg/virt-launcher/virtwrap/device/hostdevice/dra"
	"sigs.k8s.io/yaml"
)

func run(manifest, metadata string) error {
	text, err := os.ReadFile(manifest)
	if err != nil {
		return err
	}
	var vmi v1.VirtualMachineInstance
	if err := yaml.UnmarshalStrict(text, &vmi); err != nil {
		return err
	}
	devices, err := dra.CreateDRAGPUHostDevices(&vmi, metadata)
	if err != nil {
		return err
	}
	others, err := dra.CreateDRAHostDevices(&vmi, metadata)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(append(devices, others...))
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: virt-launcher-devices VMI METADATA-FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
