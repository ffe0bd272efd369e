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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/kubevirt/pkg/virt-launcher/virtwrap/device/hostdevice/dra"
	"sigs.k8s.io/yaml"
)

// plainSpec is the spec without its own way to decode itself, which passes over fields that it does not know.
type plainSpec v1.VirtualMachineInstanceSpec

// decode reads a virtual machine, and refuses fields that the API does not have.
func decode(text []byte, vmi *v1.VirtualMachineInstance) error {
	var spelled struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              plainSpec                       `json:"spec"`
		Status            v1.VirtualMachineInstanceStatus `json:"status"`
	}
	if err := yaml.UnmarshalStrict(text, &spelled); err != nil {
		return err
	}
	return yaml.UnmarshalStrict(text, vmi)
}

func run(manifest, metadata string) error {
	text, err := os.ReadFile(manifest)
	if err != nil {
		return err
	}
	var vmi v1.VirtualMachineInstance
	if err := decode(text, &vmi); err != nil {
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
