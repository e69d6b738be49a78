#!/bin/sh
# distributed_machines.sh FOLDER COUNT RATE COMMAND...: run a command on the first of so many machines, as far as one machine can show
# them: each is a network namespace with a host name, the address 10.9.0.NUMBER and a cable of RATE (tbf of tc; "" for as fast as it
# goes). FOLDER gets the program that stands for ssh (another name: ssh gets options). Needs root; run it by `unshare --mount --net`, and nothing stays behind.
set -e
folder=$1 count=$2 rate=$3
shift 3
mkdir -p /run/netns
mount -t tmpfs none /run/netns
ip link set lo up
ip link add name switch type bridge
ip link set switch up
for i in $(seq "$count"); do
    ip netns add "machine$i"
    ip link add name "port$i" type veth peer name eth0 netns "machine$i"
    ip link set "port$i" master switch up
    ip -n "machine$i" addr add "10.9.0.$i/24" dev eth0
    ip -n "machine$i" link set eth0 up
    ip -n "machine$i" link set lo up
    [ -z "$rate" ] || tc -n "machine$i" qdisc add dev eth0 root tbf rate "$rate" burst 256kb latency 400ms
done
cat >"$folder/agent" <<'END'
#!/bin/sh
number=${1##*.}
shift
exec ip netns exec "machine$number" unshare --uts sh -c "hostname machine$number; $*"
END
chmod +x "$folder/agent"
# no exec: the switch lives as long as this shell
export PRTE_MCA_plm_ssh_agent="$folder/agent"
ip netns exec machine1 unshare --uts sh -c 'hostname machine1; exec "$@"' sh "$@" || exit $?
