// Command virtual-kubelet joins a cluster as a node whose pods run nowhere: Virtual Kubelet's own node and pod
// controllers and its own HTTP API, over a provider of ours that keeps pods in memory.
//
// Virtual Kubelet is a library, and the mock provider of its example command cannot be imported.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	vklogrus "github.com/virtual-kubelet/virtual-kubelet/log/logrus"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// Set by the linker from the version in go.mod.
var version = "unknown"

type options struct {
	kubeconfig string
	nodeName   string
	address    string
	port       int
	certFile   string
	keyFile    string
	clientCA   string
	cpu        string
	memory     string
	pods       string
	taint      bool
	startup    time.Duration
	verbose    bool
}

func main() {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "the cluster to join")
	flag.StringVar(&o.nodeName, "node-name", "virtual-kubelet", "name of the Node object")
	flag.StringVar(&o.address, "address", "127.0.0.1", "address to serve on, and the node's InternalIP")
	flag.IntVar(&o.port, "port", 10250, "port to serve on")
	flag.StringVar(&o.certFile, "tls-cert-file", "", "serving certificate, PEM")
	flag.StringVar(&o.keyFile, "tls-private-key-file", "", "key of the serving certificate, PEM")
	flag.StringVar(&o.clientCA, "client-ca-file", "",
		"certificate authority of clients; with it callers are authenticated by certificate or token and authorized by the cluster, without it everyone is let in")
	flag.StringVar(&o.cpu, "cpu", "20", "CPU capacity of the node")
	flag.StringVar(&o.memory, "memory", "100Gi", "memory capacity of the node")
	flag.StringVar(&o.pods, "pods", "110", "how many pods the node takes")
	flag.BoolVar(&o.taint, "taint", true, "keep pods away that do not tolerate virtual-kubelet.io/provider")
	flag.DurationVar(&o.startup, "startup-timeout", time.Minute, "give up when the node is not registered after this")
	flag.BoolVar(&o.verbose, "v", false, "log at debug level")
	showVersion := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *showVersion {
		fmt.Println("virtual-kubelet", version)
		return
	}
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "virtual-kubelet: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "virtual-kubelet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	logger := logrus.New()
	if o.verbose {
		logger.SetLevel(logrus.DebugLevel)
	}
	log.L = vklogrus.FromLogrus(logrus.NewEntry(logger))
	ctx = log.WithLogger(ctx, log.L)

	if o.certFile == "" || o.keyFile == "" {
		return errors.New("--tls-cert-file and --tls-private-key-file are needed: a kubelet serves TLS")
	}
	capacity, err := capacity(o)
	if err != nil {
		return err
	}
	client, err := nodeutil.ClientsetFromEnv(o.kubeconfig)
	if err != nil {
		return err
	}

	mux := http.NewServeMux()
	newProvider := func(nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		return newMemory(o.nodeName, o.address, time.Now), nil, nil
	}
	n, err := nodeutil.NewNode(o.nodeName, newProvider,
		nodeutil.WithClient(client),
		func(cfg *nodeutil.NodeConfig) error {
			cfg.HTTPListenAddr = net.JoinHostPort(o.address, strconv.Itoa(o.port))
			describe(&cfg.NodeSpec, o, capacity)
			return nil
		},
		authenticate(o, mux),
		nodeutil.WithTLSConfig(nodeutil.WithKeyPairFromPath(o.certFile, o.keyFile), requestClientCertificate(o.clientCA)),
		nodeutil.AttachProviderRoutes(mux),
	)
	if err != nil {
		return err
	}

	go n.Run(ctx) //nolint:errcheck // read from n.Err below
	if err := n.WaitReady(ctx, o.startup); err != nil {
		return fmt.Errorf("node %s did not become ready: %w", o.nodeName, err)
	}
	log.G(ctx).WithField("node", o.nodeName).Info("node is ready")
	<-n.Done()
	return n.Err()
}

func capacity(o options) (corev1.ResourceList, error) {
	list := corev1.ResourceList{}
	for name, value := range map[corev1.ResourceName]string{
		corev1.ResourceCPU: o.cpu, corev1.ResourceMemory: o.memory, corev1.ResourcePods: o.pods,
	} {
		quantity, err := resource.ParseQuantity(value)
		if err != nil {
			return nil, fmt.Errorf("--%s %q: %w", name, value, err)
		}
		list[name] = quantity
	}
	return list, nil
}

func describe(spec *corev1.Node, o options, capacity corev1.ResourceList) {
	spec.Status.Capacity = capacity
	spec.Status.Allocatable = capacity
	spec.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: o.address},
		{Type: corev1.NodeHostName, Address: o.nodeName},
	}
	spec.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(o.port)
	spec.Status.NodeInfo.OperatingSystem = "linux"
	spec.Status.NodeInfo.Architecture = "amd64"
	spec.Status.NodeInfo.KubeletVersion = version
	for i := range spec.Status.Conditions {
		// The controller marks the node ready once it is; the others are pressures that a node of this kind never has.
		spec.Status.Conditions[i].Status = corev1.ConditionFalse
	}
	if o.taint {
		spec.Spec.Taints = append(spec.Spec.Taints, corev1.Taint{
			Key: "virtual-kubelet.io/provider", Value: "memory", Effect: corev1.TaintEffectNoSchedule,
		})
	}
}

func authenticate(o options, mux http.Handler) nodeutil.NodeOpt {
	return func(cfg *nodeutil.NodeConfig) error {
		auth := nodeutil.NoAuth()
		if o.clientCA != "" {
			var err error
			auth, err = nodeutil.WebhookAuth(cfg.Client, o.nodeName, func(c *nodeutil.WebhookAuthConfig) error {
				var err error
				c.AuthnConfig.ClientCertificateCAContentProvider, err =
					dynamiccertificates.NewDynamicCAContentFromFile("client-ca", o.clientCA)
				return err
			})
			if err != nil {
				return err
			}
		}
		cfg.Handler = api.InstrumentHandler(nodeutil.WithAuth(auth, mux))
		return nil
	}
}

// Unlike the library's WithCAFromPath this does not demand a certificate: a scraper comes with a token.
func requestClientCertificate(path string) func(*tls.Config) error {
	return func(cfg *tls.Config) error {
		if path == "" {
			return nil
		}
		pem, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return nodeutil.WithCACert(pem)(cfg)
	}
}
