package main

import (
	"context"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// What a container without a request uses.
var (
	defaultCPU    = resource.MustParse("100m")
	defaultMemory = resource.MustParse("64Mi")
)

// usage is what a thing uses now, and has used since it started.
type usage struct {
	cores   float64
	seconds float64
	bytes   uint64
}

func (u *usage) add(other usage) {
	u.cores += other.cores
	u.seconds += other.seconds
	u.bytes += other.bytes
}

func (u usage) cpu(at metav1.Time) *stats.CPUStats {
	nanoCores, nanoSeconds := uint64(u.cores*1e9), uint64(u.seconds*1e9)
	return &stats.CPUStats{Time: at, UsageNanoCores: &nanoCores, UsageCoreNanoSeconds: &nanoSeconds}
}

func (u usage) memory(at metav1.Time) *stats.MemoryStats {
	return &stats.MemoryStats{Time: at, UsageBytes: &u.bytes, WorkingSetBytes: &u.bytes}
}

// A container uses exactly what it requests.
func used(container *corev1.Container, since, now time.Time) usage {
	cpu, memory := defaultCPU, defaultMemory
	if request, ok := container.Resources.Requests[corev1.ResourceCPU]; ok {
		cpu = request
	}
	if request, ok := container.Resources.Requests[corev1.ResourceMemory]; ok {
		memory = request
	}
	cores := cpu.AsApproximateFloat64()
	return usage{cores: cores, seconds: cores * now.Sub(since).Seconds(), bytes: uint64(memory.Value())}
}

func (m *memory) GetStatsSummary(ctx context.Context) (*stats.Summary, error) {
	now := m.now()
	at := metav1.NewTime(now)
	pods, err := m.GetPods(ctx)
	if err != nil {
		return nil, err
	}
	var total usage
	summary := &stats.Summary{Pods: make([]stats.PodStats, 0, len(pods))}
	for _, pod := range pods {
		var ofPod usage
		entry := stats.PodStats{
			PodRef:    stats.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)},
			StartTime: *pod.Status.StartTime,
		}
		for i := range pod.Spec.Containers {
			container := &pod.Spec.Containers[i]
			one := used(container, pod.Status.StartTime.Time, now)
			ofPod.add(one)
			entry.Containers = append(entry.Containers, stats.ContainerStats{
				Name: container.Name, StartTime: *pod.Status.StartTime, CPU: one.cpu(at), Memory: one.memory(at),
			})
		}
		entry.CPU, entry.Memory = ofPod.cpu(at), ofPod.memory(at)
		summary.Pods = append(summary.Pods, entry)
		total.add(ofPod)
	}
	summary.Node = stats.NodeStats{
		NodeName: m.nodeName, StartTime: metav1.NewTime(m.started), CPU: total.cpu(at), Memory: total.memory(at),
	}
	return summary, nil
}

// GetMetricsResource gives the families of a kubelet's /metrics/resource.
func (m *memory) GetMetricsResource(ctx context.Context) ([]*dto.MetricFamily, error) {
	now := m.now()
	pods, err := m.GetPods(ctx)
	if err != nil {
		return nil, err
	}
	page := newPage(now)
	var total usage
	for _, pod := range pods {
		var ofPod usage
		labels := []string{"namespace", pod.Namespace, "pod", pod.Name}
		for i := range pod.Spec.Containers {
			container := &pod.Spec.Containers[i]
			one := used(container, pod.Status.StartTime.Time, now)
			ofPod.add(one)
			page.add("container", one, append([]string{"container", container.Name}, labels...)...)
			page.start(pod.Status.StartTime.Time, append([]string{"container", container.Name}, labels...)...)
		}
		page.add("pod", ofPod, labels...)
		total.add(ofPod)
	}
	page.add("node", total)
	return page.families(), nil
}

// page gathers families in the order in which a kubelet writes them.
type page struct {
	at     int64
	order  []string
	byName map[string]*dto.MetricFamily
}

func newPage(now time.Time) *page {
	p := &page{at: now.UnixMilli(), byName: map[string]*dto.MetricFamily{}}
	counter, gauge := dto.MetricType_COUNTER, dto.MetricType_GAUGE
	p.declare("container_cpu_usage_seconds_total", "Cumulative cpu time consumed by the container in core-seconds", counter)
	p.declare("container_memory_working_set_bytes", "Current working set of the container in bytes", gauge)
	p.declare("container_start_time_seconds", "Start time of the container since unix epoch in seconds", gauge)
	p.declare("node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds", counter)
	p.declare("node_memory_working_set_bytes", "Current working set of the node in bytes", gauge)
	p.declare("pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds", counter)
	p.declare("pod_memory_working_set_bytes", "Current working set of the pod in bytes", gauge)
	p.declare("resource_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", gauge)
	p.gauge("resource_scrape_error", 0, nil, nil)
	return p
}

func (p *page) declare(name, help string, kind dto.MetricType) {
	p.order = append(p.order, name)
	p.byName[name] = &dto.MetricFamily{Name: &name, Help: &help, Type: &kind}
}

func (p *page) add(of string, u usage, labels ...string) {
	seconds := u.seconds
	cpu := p.byName[of+"_cpu_usage_seconds_total"]
	cpu.Metric = append(cpu.Metric, &dto.Metric{
		Label: pairs(labels), Counter: &dto.Counter{Value: &seconds}, TimestampMs: &p.at,
	})
	p.gauge(of+"_memory_working_set_bytes", float64(u.bytes), labels, &p.at)
}

func (p *page) start(at time.Time, labels ...string) {
	p.gauge("container_start_time_seconds", float64(at.UnixNano())/1e9, labels, nil)
}

func (p *page) gauge(name string, value float64, labels []string, at *int64) {
	family := p.byName[name]
	family.Metric = append(family.Metric, &dto.Metric{
		Label: pairs(labels), Gauge: &dto.Gauge{Value: &value}, TimestampMs: at,
	})
}

// families leaves out those without a sample, which a kubelet does not write either.
func (p *page) families() []*dto.MetricFamily {
	var families []*dto.MetricFamily
	for _, name := range p.order {
		if family := p.byName[name]; len(family.Metric) > 0 {
			families = append(families, family)
		}
	}
	return families
}

func pairs(labels []string) []*dto.LabelPair {
	var pairs []*dto.LabelPair
	for i := 0; i+1 < len(labels); i += 2 {
		pairs = append(pairs, &dto.LabelPair{Name: &labels[i], Value: &labels[i+1]})
	}
	return pairs
}
