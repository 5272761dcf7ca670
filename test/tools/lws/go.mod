module tools/lws

go 1.24.0

require sigs.k8s.io/lws v0.7.0
