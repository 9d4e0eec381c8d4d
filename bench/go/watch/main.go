// Watch decodes a recorded stream of pods as client-go does: `watch decode|stream|heap PASSES FILE`.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"
	"k8s.io/client-go/tools/cache"

	"kubevitals/bench/go/internal/worker"
)

func main() {
	if len(os.Args) != 4 {
		worker.Fail("usage: watch decode|stream|heap PASSES FILE")
	}
	passes, err := strconv.Atoi(os.Args[2])
	if err != nil || passes < 1 {
		worker.Fail(fmt.Sprintf("not a number of passes: %q", os.Args[2]))
	}
	recording, err := os.ReadFile(os.Args[3])
	if err != nil {
		worker.Fail(err)
	}
	switch os.Args[1] {
	case "decode":
		worker.Serve(passes, func() (pods uint64) {
			decode(recording, func(*corev1.Pod) { pods++ })
			return pods
		})
	case "stream":
		worker.Serve(passes, func() uint64 { return uint64(len(fill(recording).ListKeys())) })
	case "heap":
		worker.ServeOnce(func() (items, kept uint64) { return keep(recording) })
	default:
		worker.Fail(fmt.Sprintf("unknown mode %q", os.Args[1]))
	}
}

// decode reads the stream with the decoders that generated clients of client-go negotiate for a watch in JSON.
func decode(recording []byte, each func(*corev1.Pod)) {
	codecs := rest.CodecFactoryForGeneratedClient(scheme.Scheme, scheme.Codecs).WithoutConversion()
	negotiator := kruntime.NewClientNegotiator(codecs, corev1.SchemeGroupVersion)
	objects, events, framer, err := negotiator.StreamDecoder(kruntime.ContentTypeJSON, nil)
	if err != nil {
		worker.Fail(err)
	}
	frames := framer.NewFrameReader(io.NopCloser(bytes.NewReader(recording)))
	decoder := restwatch.NewDecoder(streaming.NewDecoder(frames, events), objects)
	for {
		kind, object, err := decoder.Decode()
		if errors.Is(err, io.EOF) {
			return
		}
		pod, isPod := object.(*corev1.Pod)
		if err != nil || kind != watch.Added || !isPod {
			worker.Fail(fmt.Sprintf("unexpected event %q %T: %v", kind, object, err))
		}
		each(pod)
	}
}

// fill adds all pods to a store, as an informer does.
func fill(recording []byte) cache.Store {
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	decode(recording, func(pod *corev1.Pod) {
		if err := store.Add(pod); err != nil {
			worker.Fail(err)
		}
	})
	return store
}

// keep measures the heap that a filled store retains.
func keep(recording []byte) (pods, kept uint64) {
	before := live()
	store := fill(recording)
	after := live()
	pods = uint64(len(store.ListKeys()))
	runtime.KeepAlive(recording)
	if after < before {
		worker.Fail("the heap shrank")
	}
	return pods, after - before
}

func live() uint64 {
	// The second collection takes what finalizers held back in the first.
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
