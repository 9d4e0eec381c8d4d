package main

import (
	"context"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/exec"
)

// memory is a provider whose pods run at once, for ever, and nowhere.
//
// What its containers have used and logged is a function of their start and of the time, so that two readers see the
// same and a test can say what it must be.
type memory struct {
	nodeName string
	address  string
	now      func() time.Time
	started  time.Time

	mu     sync.Mutex
	pods   map[string]*corev1.Pod
	notify func(*corev1.Pod)
}

func newMemory(nodeName, address string, now func() time.Time) *memory {
	return &memory{
		nodeName: nodeName,
		address:  address,
		now:      now,
		started:  now(),
		pods:     map[string]*corev1.Pod{},
		notify:   func(*corev1.Pod) {},
	}
}

// NotifyPods makes this a provider that reports changes itself instead of being polled.
func (m *memory) NotifyPods(_ context.Context, notify func(*corev1.Pod)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notify = notify
}

func (m *memory) CreatePod(_ context.Context, pod *corev1.Pod) error {
	pod = pod.DeepCopy()
	now := metav1.NewTime(m.now())
	pod.Status = corev1.PodStatus{
		Phase:     corev1.PodRunning,
		HostIP:    m.address,
		PodIP:     m.address,
		StartTime: &now,
	}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now,
		})
	}
	started := true
	for _, container := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name:        container.Name,
			Image:       container.Image,
			ContainerID: "memory://" + string(pod.UID) + "/" + container.Name,
			Ready:       true,
			Started:     &started,
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	m.store(pod)
	return nil
}

func (m *memory) UpdatePod(_ context.Context, pod *corev1.Pod) error {
	known, err := m.get(pod.Namespace, pod.Name)
	if err != nil {
		return err
	}
	pod = pod.DeepCopy()
	pod.Status = known.Status
	m.store(pod)
	return nil
}

func (m *memory) DeletePod(_ context.Context, pod *corev1.Pod) error {
	m.mu.Lock()
	known, ok := m.pods[key(pod.Namespace, pod.Name)]
	delete(m.pods, key(pod.Namespace, pod.Name))
	notify := m.notify
	m.mu.Unlock()
	if !ok {
		return errdefs.NotFoundf("pod %s/%s is not here", pod.Namespace, pod.Name)
	}
	gone := known.DeepCopy()
	gone.Status.Phase = corev1.PodSucceeded
	now := metav1.NewTime(m.now())
	for i := range gone.Status.ContainerStatuses {
		status := &gone.Status.ContainerStatuses[i]
		status.Ready = false
		status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: "Completed", StartedAt: status.State.Running.StartedAt, FinishedAt: now,
		}}
	}
	notify(gone)
	return nil
}

func (m *memory) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	return m.get(namespace, name)
}

func (m *memory) GetPodStatus(_ context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := m.get(namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

// GetPods gives the pods in order of their names.
func (m *memory) GetPods(context.Context) ([]*corev1.Pod, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := make([]string, 0, len(m.pods))
	for key := range m.pods {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	pods := make([]*corev1.Pod, 0, len(keys))
	for _, key := range keys {
		pods = append(pods, m.pods[key].DeepCopy())
	}
	return pods, nil
}

// RunInContainer knows three commands, enough to see every stream and the exit code: echo, cat and exit.
func (m *memory) RunInContainer(
	_ context.Context, namespace, pod, container string, command []string, attach api.AttachIO,
) error {
	if _, err := m.containerStart(namespace, pod, container); err != nil {
		return err
	}
	if len(command) == 0 {
		return errdefs.InvalidInput("no command")
	}
	switch command[0] {
	case "echo":
		return write(attach.Stdout(), strings.Join(command[1:], " ")+"\n")
	case "cat":
		if attach.Stdin() == nil || attach.Stdout() == nil {
			return nil
		}
		_, err := io.Copy(attach.Stdout(), attach.Stdin())
		return err
	case "exit":
		return exited(command[1:])
	}
	if err := write(attach.Stderr(), command[0]+": not found\n"); err != nil {
		return err
	}
	return exec.CodeExitError{Err: fmt.Errorf("%s: not found", command[0]), Code: 127}
}

// AttachToContainer shows what the container logs from now on.
func (m *memory) AttachToContainer(
	ctx context.Context, namespace, pod, container string, attach api.AttachIO,
) error {
	logs, err := m.GetContainerLogs(ctx, namespace, pod, container, api.ContainerLogOpts{
		Follow: true, SinceTime: m.now(),
	})
	if err != nil {
		return err
	}
	defer logs.Close()
	if attach.Stdout() == nil {
		return nil
	}
	_, err = io.Copy(attach.Stdout(), logs)
	return err
}

// PortForward answers with what it is sent, whatever the port.
func (m *memory) PortForward(_ context.Context, namespace, pod string, _ int32, stream io.ReadWriteCloser) error {
	if _, err := m.get(namespace, pod); err != nil {
		return err
	}
	_, err := io.Copy(stream, stream)
	return err
}

func (m *memory) store(pod *corev1.Pod) {
	m.mu.Lock()
	m.pods[key(pod.Namespace, pod.Name)] = pod
	notify := m.notify
	m.mu.Unlock()
	// Outside the lock: the controller may ask for the pod in turn.
	notify(pod.DeepCopy())
}

func (m *memory) get(namespace, name string) (*corev1.Pod, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pod, ok := m.pods[key(namespace, name)]
	if !ok {
		return nil, errdefs.NotFoundf("pod %s/%s is not here", namespace, name)
	}
	return pod.DeepCopy(), nil
}

func (m *memory) containerStart(namespace, name, container string) (time.Time, error) {
	pod, err := m.get(namespace, name)
	if err != nil {
		return time.Time{}, err
	}
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == container {
			return status.State.Running.StartedAt.Time, nil
		}
	}
	return time.Time{}, errdefs.NotFoundf("pod %s/%s has no container %s", namespace, name, container)
}

func key(namespace, name string) string {
	return namespace + "/" + name
}

func write(to io.Writer, text string) error {
	if to == nil {
		return nil
	}
	_, err := io.WriteString(to, text)
	return err
}

func exited(arguments []string) error {
	if len(arguments) == 0 || arguments[0] == "0" {
		return nil
	}
	code, err := strconv.Atoi(arguments[0])
	if err != nil {
		return errdefs.InvalidInputf("exit %q: not a number", arguments[0])
	}
	return exec.CodeExitError{Err: fmt.Errorf("exited with %d", code), Code: code}
}
