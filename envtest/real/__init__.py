"""A real Kubernetes cluster on this machine's loopback: control plane, containerd and up to four nodes.

Where things are:

    api_server    etcd and kube-apiserver alone, for any user; tokens of service accounts
    startup       starts a cluster
    cluster       RealCluster: use, close
    containers    running a command inside a container
    assets        which binaries a cluster runs; build makes them with Go from the modules in go/
    image         the one image of a cluster
    slots         keep clusters on one machine apart
    render        configuration files; commands the command lines; control_plane and nodes start them
    processes     starts and stops processes through supervisor, the process that owns all of them
    isolation     the cluster's own mounts; cgroups its control groups

Everything that a cluster starts lives in a PID namespace and a mount namespace of its own, whose
first process is the supervisor. It ends when its owner ends, however that happens, and the kernel
then ends the rest.
"""
