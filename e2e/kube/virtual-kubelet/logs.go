package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// A container logs one line for each second of its life; only the last of them are kept.
const keptLines = 1000

// GetContainerLogs gives the lines that the container has logged, and with Follow those still to come.
func (m *memory) GetContainerLogs(
	ctx context.Context, namespace, pod, container string, opts api.ContainerLogOpts,
) (io.ReadCloser, error) {
	start, err := m.containerStart(namespace, pod, container)
	if err != nil {
		return nil, err
	}
	if opts.SinceSeconds > 0 {
		opts.SinceTime = m.now().Add(-time.Duration(opts.SinceSeconds) * time.Second)
	}
	reader, writer := io.Pipe()
	stream := logStream{
		name:  namespace + "/" + pod + "/" + container,
		start: start,
		opts:  opts,
		out:   writer,
		left:  opts.LimitBytes,
	}
	go func() {
		next, err := stream.past(m.now())
		for err == nil && opts.Follow {
			next, err = stream.following(ctx, next, m.now)
		}
		if err == io.EOF || err == context.Canceled {
			err = nil
		}
		writer.CloseWithError(err)
	}()
	return reader, nil
}

type logStream struct {
	name  string
	start time.Time
	opts  api.ContainerLogOpts
	out   io.Writer
	left  int
}

// past writes the lines up to now and gives the number of the next one.
func (s *logStream) past(now time.Time) (int, error) {
	end := max(0, int(now.Sub(s.start)/time.Second)+1)
	first := max(0, end-keptLines)
	if !s.opts.SinceTime.IsZero() {
		for first < end && s.at(first).Before(s.opts.SinceTime) {
			first++
		}
	}
	if s.opts.Tail > 0 {
		first = max(first, end-s.opts.Tail)
	}
	for line := first; line < end; line++ {
		if err := s.write(line); err != nil {
			return line, err
		}
	}
	return end, nil
}

func (s *logStream) following(ctx context.Context, next int, now func() time.Time) (int, error) {
	timer := time.NewTimer(s.at(next).Sub(now()))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return next, ctx.Err()
	case <-timer.C:
		return next + 1, s.write(next)
	}
}

func (s *logStream) at(line int) time.Time {
	return s.start.Add(time.Duration(line) * time.Second)
}

func (s *logStream) write(line int) error {
	text := fmt.Sprintf("%s line %d\n", s.name, line)
	if s.opts.Timestamps {
		text = s.at(line).UTC().Format(time.RFC3339Nano) + " " + text
	}
	ended := false
	if s.opts.LimitBytes > 0 {
		if len(text) >= s.left {
			text, ended = text[:s.left], true
		}
		s.left -= len(text)
	}
	if _, err := io.WriteString(s.out, text); err != nil {
		return err
	}
	if ended {
		return io.EOF
	}
	return nil
}
