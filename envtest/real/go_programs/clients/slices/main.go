// Command slices publishes devices of a node with the controller that Kubernetes has for drivers, at the cluster that
// KUBECONFIG names: three, then two in another pool. It prints the pools and devices that are published then, and
// ends after the slice of a pool that it deleted is there again.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"
)

const (
	driver   = "slices.example.com"
	node     = "node-0"
	patience = 40 * time.Second
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	if err := publish(ctx); err != nil {
		log.Fatal(err)
	}
}

func publish(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	client := kubernetes.NewForConfigOrDie(config)
	var problems []error
	controller, err := resourceslice.StartController(ctx, resourceslice.Options{
		DriverName: driver,
		KubeClient: client,
		Owner:      &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: node},
		SyncDelay:  ptr.To(time.Second),
		Resources:  pools(map[string]int{"first": 3}),
		ErrorHandler: func(_ context.Context, err error, text string) {
			problems = append(problems, fmt.Errorf("%s: %w", text, err))
		},
	})
	if err != nil {
		return err
	}
	defer controller.Stop()
	if err := published(ctx, client, "first/device-0 first/device-1 first/device-2"); err != nil {
		return err
	}
	controller.Update(pools(map[string]int{"second": 2}))
	if err := published(ctx, client, "second/device-0 second/device-1"); err != nil {
		return err
	}
	if err := client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, ofDriver()); err != nil {
		return err
	}
	if err := published(ctx, client, ""); err != nil {
		return err
	}
	if err := published(ctx, client, "second/device-0 second/device-1"); err != nil {
		return err
	}
	for _, problem := range problems {
		return problem
	}
	return nil
}

func pools(sizes map[string]int) *resourceslice.DriverResources {
	resources := &resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{}}
	for name, size := range sizes {
		var devices []resourceapi.Device
		for index := range size {
			devices = append(devices, resourceapi.Device{Name: fmt.Sprintf("device-%d", index)})
		}
		resources.Pools[name] = resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: devices}}}
	}
	return resources
}

func ofDriver() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + driver}
}

// published waits until the slices of the driver have these devices, each owned by the node, and prints them.
func published(ctx context.Context, client kubernetes.Interface, wanted string) error {
	var found []string
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		list, err := client.ResourceV1().ResourceSlices().List(ctx, ofDriver())
		if err != nil {
			return false, err
		}
		found = nil
		for _, slice := range list.Items {
			if len(slice.OwnerReferences) != 1 || slice.OwnerReferences[0].Name != node {
				return false, fmt.Errorf("the slice %s has the owners %v", slice.Name, slice.OwnerReferences)
			}
			for _, device := range slice.Spec.Devices {
				found = append(found, slice.Spec.Pool.Name+"/"+device.Name)
			}
		}
		slices.Sort(found)
		return fmt.Sprint(found) == "["+wanted+"]", nil
	})
	if err != nil {
		return fmt.Errorf("%v are published, not [%s]: %w", found, wanted, err)
	}
	fmt.Println(found)
	return nil
}
