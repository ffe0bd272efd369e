// Command informers follows all resources of the cluster that KUBECONFIG names, each with a typed informer and with
// one that gets metadata only. It then creates, changes and deletes a label's ConfigMap, and waits until both have
// seen that. It prints how many objects each informer has, as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	patience  = 30 * time.Second
	namespace = "default"
	watched   = "watched-by-informers"
)

// Found is how many objects the informers of a resource have.
type Found struct {
	Typed    int `json:"typed"`
	Metadata int `json:"metadata"`
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	if err := follow(ctx); err != nil {
		log.Fatal(err)
	}
}

func follow(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	config.QPS = -1
	client := kubernetes.NewForConfigOrDie(config)
	resources, err := followed(client.Discovery())
	if err != nil {
		return err
	}
	typed := informers.NewSharedInformerFactory(client, 0)
	untyped := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0)
	partial := metadatainformer.NewSharedInformerFactory(metadata.NewForConfigOrDie(config), 0)
	whole := map[schema.GroupVersionResource]cache.SharedIndexInformer{}
	metadataOnly := map[schema.GroupVersionResource]cache.SharedIndexInformer{}
	var failures sync.Map
	for _, resource := range resources {
		generic, err := typed.ForResource(resource)
		if err != nil {
			// A kind of a CRD has no Go type.
			generic = untyped.ForResource(resource)
		}
		whole[resource] = generic.Informer()
		metadataOnly[resource] = partial.ForResource(resource).Informer()
		for kind, one := range map[string]cache.SharedIndexInformer{"typed": whole[resource], "metadata": metadataOnly[resource]} {
			name := kind + " " + resource.String()
			if err := one.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { failures.Store(name, err.Error()) }); err != nil {
				return err
			}
		}
	}
	changes := map[string]*events{}
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	for kind, one := range map[string]cache.SharedIndexInformer{"typed": whole[configMaps], "metadata": metadataOnly[configMaps]} {
		changes[kind] = &events{}
		if _, err := one.AddEventHandler(changes[kind].handler()); err != nil {
			return err
		}
	}
	typed.Start(ctx.Done())
	untyped.Start(ctx.Done())
	partial.Start(ctx.Done())
	for resource := range whole {
		if err := synced(ctx, resource, whole[resource], metadataOnly[resource]); err != nil {
			failures.Range(func(key, value any) bool { log.Print(key, ": ", value); return true })
			return err
		}
	}
	if err := change(ctx, client, changes); err != nil {
		return err
	}
	failed := false
	failures.Range(func(key, value any) bool { log.Print(key, ": ", value); failed = true; return true })
	if failed {
		return fmt.Errorf("some watches failed")
	}
	counts := map[string]Found{}
	for resource, one := range whole {
		name := strings.Trim(resource.Group+"/"+resource.Version+"/"+resource.Resource, "/")
		counts[name] = Found{Typed: len(one.GetStore().List()), Metadata: len(metadataOnly[resource].GetStore().List())}
	}
	return json.NewEncoder(os.Stdout).Encode(counts)
}

// followed returns the resources that can be listed and watched, in their preferred versions.
func followed(client discovery.DiscoveryInterface) ([]schema.GroupVersionResource, error) {
	lists, err := client.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	watchable := discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, lists)
	found, err := discovery.GroupVersionResources(watchable)
	resources := make([]schema.GroupVersionResource, 0, len(found))
	for resource := range found {
		resources = append(resources, resource)
	}
	return resources, err
}

func synced(ctx context.Context, resource schema.GroupVersionResource, all ...cache.SharedIndexInformer) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, one := range all {
		if !cache.WaitForCacheSync(limited.Done(), one.HasSynced) {
			return fmt.Errorf("an informer of %s got no list within %s", resource, patience)
		}
	}
	return nil
}

// events are what an informer has said about one ConfigMap.
type events struct {
	mutex sync.Mutex
	seen  []string
}

func (e *events) handler() cache.ResourceEventHandler {
	note := func(word string, object any) {
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		if found, err := meta.Accessor(object); err == nil && found.GetName() == watched {
			e.mutex.Lock()
			defer e.mutex.Unlock()
			e.seen = append(e.seen, fmt.Sprint(word, found.GetLabels()))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { note("added", object) },
		UpdateFunc: func(_, object any) { note("changed", object) },
		DeleteFunc: func(object any) { note("deleted", object) },
	}
}

func (e *events) all() string {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return strings.Join(e.seen, " ")
}

// change creates, labels and deletes a ConfigMap, and waits until each informer has seen the three events.
func change(ctx context.Context, client kubernetes.Interface, changes map[string]*events) error {
	configMaps := client.CoreV1().ConfigMaps(namespace)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: watched}}
	if _, err := configMaps.Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return err
	}
	patch := []byte(`{"metadata":{"labels":{"is":"changed"}}}`)
	if _, err := configMaps.Patch(ctx, watched, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	if err := configMaps.Delete(ctx, watched, metav1.DeleteOptions{}); err != nil {
		return err
	}
	const wanted = "addedmap[] changedmap[is:changed] deletedmap[is:changed]"
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		typed, partial := changes["typed"].all(), changes["metadata"].all()
		if typed == wanted && partial == wanted {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the typed informer has seen %q, the other one %q", typed, partial)
		}
	}
}
