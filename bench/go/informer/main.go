// Informer watches all pods with a shared informer of client-go and only counts events: `informer KUBECONFIG`.
//
// It prints the address of the counts: the response to `GET /` is `ADDED UPDATED`.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"kubevitals/bench/go/internal/worker"
)

func main() {
	if len(os.Args) != 2 {
		worker.Fail("usage: informer KUBECONFIG")
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		worker.Fail(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		worker.Fail(err)
	}
	var added, updated atomic.Uint64
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	_, err = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { added.Add(1) },
		UpdateFunc: func(_, _ any) { updated.Add(1) },
	})
	if err != nil {
		worker.Fail(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		worker.Fail(err)
	}
	fmt.Println(listener.Addr())
	counts := func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, added.Load(), updated.Load())
	}
	go func() { worker.Fail(http.Serve(listener, http.HandlerFunc(counts))) }()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
}
