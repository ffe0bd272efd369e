// Command allocates has Karpenter's own allocator say which claims a new node of an instance type serves.
//
// Each line of its input is a question: the DynamicResources of an instance type as `gpuctl plan -o karpenter`
// prints them, DeviceClasses, and ResourceClaims. For each claim it takes a new node, and lets pods with such a
// claim come one after the other until one does not fit, or until there are as many as are asked for. The answer
// is a line too: for each claim the devices that each pod got, and why the next one got none.
//
// A field that Karpenter's types do not have is an error.
package main

import (
	"bufio"
	"context"
	stdjson "encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"unique"

	"github.com/go-json-experiment/json"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/scheduling/dynamicresources"
)

const (
	instanceType = "instance-type"
	nodePool     = "node-pool"
)

type question struct {
	Resources cloudprovider.DynamicResources `json:"resources"`
	Classes   []*resourcev1.DeviceClass      `json:"classes"`
	Claims    []*resourcev1.ResourceClaim    `json:"claims"`
	// Pods is how many pods come at most.
	Pods int `json:"pods"`
}

type device struct {
	Request string `json:"request"`
	Driver  string `json:"driver"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
}

type answer struct {
	// Pods holds for each pod that fitted the devices of its claim.
	Pods    [][]device `json:"pods"`
	Refused string     `json:"refused,omitempty"`
}

// classes answers reads of DeviceClasses; everything else that a client can do is missing.
type classes struct {
	client.Client
	byName map[string]*resourcev1.DeviceClass
}

func (c *classes) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	wanted, ok := into.(*resourcev1.DeviceClass)
	if found := c.byName[key.Name]; ok && found != nil {
		found.DeepCopyInto(wanted)
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", into)}, key.Name)
}

// newNode is a node that Karpenter thinks of starting, of the only instance type.
type newNode struct {
	slices []dynamicresources.ResourceSlice
}

func (n *newNode) ID() dynamicresources.NodeClaimID        { return unique.Make("new-node") }
func (n *newNode) NodeName() string                        { return "" }
func (n *newNode) NodePoolID() dynamicresources.NodePoolID { return unique.Make(nodePool) }
func (n *newNode) Requirements() scheduling.Requirements   { return scheduling.NewRequirements() }
func (n *newNode) InstanceTypes() []dynamicresources.InstanceTypeID {
	return []dynamicresources.InstanceTypeID{unique.Make(instanceType)}
}
func (n *newNode) ResourceSlices() map[dynamicresources.InstanceTypeID][]dynamicresources.ResourceSlice {
	return map[dynamicresources.InstanceTypeID][]dynamicresources.ResourceSlice{unique.Make(instanceType): n.slices}
}

// filled lets pods with such a claim come to a new node, one after the other.
func filled(ctx context.Context, from *question, reader client.Client, claim *resourcev1.ResourceClaim) answer {
	offered := &cloudprovider.InstanceType{Name: instanceType, DynamicResources: from.Resources}
	allocator := dynamicresources.NewAllocator(
		nil,
		dynamicresources.AllocatedDeviceState{},
		dynamicresources.BuildAttributeBindings(map[string][]*cloudprovider.InstanceType{nodePool: {offered}}),
		reader,
		nil,
	)
	node := &newNode{}
	for _, template := range from.Resources.ResourceSliceTemplates {
		node.slices = append(node.slices, dynamicresources.NewTemplateSlice(template))
	}
	said := answer{Pods: [][]device{}}
	for len(said.Pods) < from.Pods {
		one := claim.DeepCopy()
		one.Name = fmt.Sprintf("%s-%d", claim.Name, len(said.Pods))
		found, err := allocator.Allocate(ctx, node, []*resourcev1.ResourceClaim{one})
		if err != nil {
			said.Refused = err.Error()
			break
		}
		found.Allocation.Commit(ctx)
		key := types.NamespacedName{Namespace: one.Namespace, Name: one.Name}
		said.Pods = append(said.Pods, devicesOf(allocator.ResourceClaimAllocationMetadataForClaim(key)))
	}
	return said
}

func devicesOf(allocated *dynamicresources.ResourceClaimAllocationMetadata) []device {
	found := []device{}
	for _, one := range allocated.Devices[unique.Make(instanceType)] {
		found = append(found, device{
			Request: one.RequestName.String(),
			Driver:  one.DeviceID.Driver.Value(),
			Pool:    one.DeviceID.Pool.Value(),
			Device:  one.DeviceID.Device.Value(),
		})
	}
	return found
}

// strictly decodes into Karpenter's own types, whose names are handles.
func strictly(line []byte, into any) error {
	handles := json.UnmarshalFunc(func(raw []byte, into *unique.Handle[string]) error {
		var text string
		err := json.Unmarshal(raw, &text)
		*into = unique.Make(text)
		return err
	})
	return json.Unmarshal(line, into, json.RejectUnknownMembers(true), json.WithUnmarshalers(handles))
}

func answered(line []byte) ([]answer, error) {
	var from question
	if err := strictly(line, &from); err != nil {
		return nil, err
	}
	reader := &classes{byName: map[string]*resourcev1.DeviceClass{}}
	for _, class := range from.Classes {
		reader.byName[class.Name] = class
	}
	said := make([]answer, len(from.Claims))
	var each sync.WaitGroup
	for index, claim := range from.Claims {
		each.Go(func() { said[index] = filled(context.Background(), &from, reader, claim) })
	}
	each.Wait()
	return said, nil
}

func run(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		said, err := answered(line)
		if err != nil {
			return err
		}
		if err := stdjson.NewEncoder(out).Encode(said); err != nil {
			return err
		}
	}
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
