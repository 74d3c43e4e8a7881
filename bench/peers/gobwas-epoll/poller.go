package main

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// poller is an epoll, level-triggered, and the clients behind its descriptors.
type poller struct {
	epoll   int
	events  []unix.EpollEvent
	ready   []*client
	mutex   sync.Mutex
	clients map[int32]*client
}

func newPoller() (*poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	return &poller{epoll: epoll, events: make([]unix.EpollEvent, 256), clients: map[int32]*client{}}, nil
}

func (p *poller) add(c *client) error {
	raw, err := c.conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	if err := raw.Control(func(fd uintptr) { c.fd = int(fd) }); err != nil {
		return err
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(c.fd)}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, c.fd, &event); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	p.clients[event.Fd] = c
	return nil
}

// remove also closes, which takes the descriptor out of the epoll.
func (p *poller) remove(c *client) {
	p.mutex.Lock()
	delete(p.clients, int32(c.fd))
	p.mutex.Unlock()
	c.conn.Close()
}

// wait returns those that have something to read; the slice is good until the next call.
func (p *poller) wait() ([]*client, error) {
	// Before it sleeps in the kernel it lets the handshakes run: on one core they would wait for the scheduler's
	// watchdog otherwise.
	timeout := 0
	for {
		count, err := unix.EpollWait(p.epoll, p.events, timeout)
		if err != nil && err != unix.EINTR {
			return nil, fmt.Errorf("epoll_wait: %w", err)
		}
		if count > 0 {
			return p.lookUp(p.events[:count]), nil
		}
		if timeout == 0 {
			runtime.Gosched()
			timeout = -1
		}
	}
}

func (p *poller) lookUp(events []unix.EpollEvent) []*client {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.ready = p.ready[:0]
	for _, event := range events {
		if c := p.clients[event.Fd]; c != nil {
			p.ready = append(p.ready, c)
		}
	}
	return p.ready
}
