// Command operator is an operator for toys, written with controller-runtime, that tries itself out: its envtest
// package installs the CRD and the webhooks at the cluster that KUBECONFIG names (UseExistingCluster). Then toys are
// created, changed and deleted, and each step is checked.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	finalizer    = "operator.example.com/toys"
	patience     = 20 * time.Second
	mutatePath   = "/mutate-operator-example-com-v1-toy"
	validatePath = "/validate-operator-example-com-v1-toy"
)

func main() {
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	if err := tryOut(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("all steps were as expected")
}

func tryOut() (err error) {
	environment := &envtest.Environment{
		UseExistingCluster: ptr.To(true),
		CRDs:               []*crd{toyCRD()},
		WebhookInstallOptions: envtest.WebhookInstallOptions{
			MutatingWebhooks:   []*admissionv1.MutatingWebhookConfiguration{mutatingConfiguration()},
			ValidatingWebhooks: []*admissionv1.ValidatingWebhookConfiguration{validatingConfiguration()},
		},
	}
	config, err := environment.Start()
	if err != nil {
		return fmt.Errorf("start the environment: %w", err)
	}
	defer func() { err = errors.Join(err, environment.Stop()) }()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), addToScheme(scheme)); err != nil {
		return err
	}
	served := environment.WebhookInstallOptions
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: served.LocalServingHost, Port: served.LocalServingPort, CertDir: served.LocalServingCertDir,
		}),
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	reconciler := &toyReconciler{manager.GetClient()}
	err = errors.Join(
		ctrl.NewControllerManagedBy(manager).For(&Toy{}).Owns(&corev1.ConfigMap{}).Complete(reconciler),
		ctrl.NewWebhookManagedBy(manager, &Toy{}).WithDefaulter(toyWebhook{}).WithValidator(toyWebhook{}).Complete(),
	)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-ended)
	}()
	if !manager.GetCache().WaitForCacheSync(ctx) {
		return errors.New("the cache of the manager did not fill")
	}
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	return walk(ctx, direct)
}

// walk creates, changes and deletes a toy.
func walk(ctx context.Context, direct client.Client) error {
	toy := &Toy{ObjectMeta: metav1.ObjectMeta{Name: "robot", Namespace: "default"}, Spec: ToySpec{Color: "red"}}
	if err := started(ctx, direct, toy); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if toy.Spec.Count != 3 {
		return fmt.Errorf("the webhook's default is missing: %+v", toy.Spec)
	}
	refused := &Toy{ObjectMeta: metav1.ObjectMeta{Name: "bad", Namespace: "default"}, Spec: ToySpec{Color: "green"}}
	err := direct.Create(ctx, refused)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "green toys are not made") {
		return fmt.Errorf("a green toy was answered %v", err)
	}
	refused.Spec = ToySpec{Color: "red", Count: 100}
	if err := direct.Create(ctx, refused); !apierrors.IsInvalid(err) {
		return fmt.Errorf("a toy that breaks the schema was answered %v", err)
	}
	if err := until(ctx, direct, toy, func() bool { return toy.Status.Made == 3 }); err != nil {
		return fmt.Errorf("status: %w", err)
	}
	toy.Spec.Count = 5
	if err := direct.Update(ctx, toy); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	if err := until(ctx, direct, toy, func() bool { return toy.Status.Made == 5 && toy.Generation == 2 }); err != nil {
		return fmt.Errorf("status after the update: %w", err)
	}
	owned := &corev1.ConfigMap{ObjectMeta: toy.ObjectMeta}
	if err := direct.Get(ctx, client.ObjectKeyFromObject(toy), owned); err != nil || owned.Data["count"] != "5" {
		return fmt.Errorf("the ConfigMap of the toy: %v %v", owned.Data, err)
	}
	if err := direct.Delete(ctx, owned); err != nil {
		return err
	}
	again := func() bool { return owned.DeletionTimestamp == nil && owned.Data["count"] == "5" }
	if err := until(ctx, direct, owned, again); err != nil {
		return fmt.Errorf("the ConfigMap was not made again: %w", err)
	}
	if err := direct.Delete(ctx, toy); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := direct.Get(ctx, client.ObjectKeyFromObject(toy), toy)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// started creates the toy; the webhook server may not listen yet.
func started(ctx context.Context, direct client.Client, toy *Toy) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := direct.Create(ctx, toy)
		if apierrors.IsInternalError(err) && strings.Contains(err.Error(), "refused") {
			return false, nil
		}
		return err == nil, err
	})
}

func until(ctx context.Context, direct client.Client, object client.Object, holds func() bool) error {
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := direct.Get(ctx, client.ObjectKeyFromObject(object), object)
		return err == nil && holds(), client.IgnoreNotFound(err)
	})
}

// toyReconciler keeps a ConfigMap for each toy, with its count, and says so in the status.
type toyReconciler struct{ client.Client }

func (r *toyReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	toy := &Toy{}
	if err := r.Get(ctx, request.NamespacedName, toy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if toy.DeletionTimestamp != nil {
		controllerutil.RemoveFinalizer(toy, finalizer)
		return ctrl.Result{}, client.IgnoreNotFound(r.Update(ctx, toy))
	}
	if controllerutil.AddFinalizer(toy, finalizer) {
		return ctrl.Result{}, r.Update(ctx, toy)
	}
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: toy.Name, Namespace: toy.Namespace}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, owned, func() error {
		owned.Data = map[string]string{"count": fmt.Sprint(toy.Spec.Count)}
		return controllerutil.SetControllerReference(toy, owned, r.Scheme())
	})
	if err != nil || toy.Status.Made == toy.Spec.Count {
		return ctrl.Result{}, err
	}
	toy.Status.Made = toy.Spec.Count
	return ctrl.Result{}, r.Status().Update(ctx, toy)
}

// toyWebhook makes three toys where no count is given, and refuses green ones.
type toyWebhook struct{}

func (toyWebhook) Default(_ context.Context, toy *Toy) error {
	if toy.Spec.Count == 0 {
		toy.Spec.Count = 3
	}
	return nil
}

func (w toyWebhook) ValidateCreate(_ context.Context, toy *Toy) (admission.Warnings, error) {
	if toy.Spec.Color == "green" {
		return nil, errors.New("green toys are not made")
	}
	return nil, nil
}

func (w toyWebhook) ValidateUpdate(ctx context.Context, _, toy *Toy) (admission.Warnings, error) {
	return w.ValidateCreate(ctx, toy)
}

func (toyWebhook) ValidateDelete(context.Context, *Toy) (admission.Warnings, error) { return nil, nil }
