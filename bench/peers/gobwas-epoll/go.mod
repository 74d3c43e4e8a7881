module veche.invalid/bench/gobwas-epoll

go 1.26.8

require (
	github.com/gobwas/ws v1.5.0
	golang.org/x/sys v0.40.0
)

require github.com/gobwas/httphead v0.1.0 // indirect
