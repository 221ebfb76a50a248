//! `cargo xtask hosts`: ranks on two hosts that a slow link joins, on this machine.
//!
//! Two network namespaces with host names of their own are joined by a pair of virtual interfaces, shaped to
//! 1 Gbit/s. Open MPI starts ranks in both and may only use TCP, so whatever they exchange goes over the
//! link, which its counters show. The law of ranks as processes is run so; then the link is cut under a job.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::check;
use crate::process::{self, command};

/// The hosts, their interfaces and addresses.
const HOSTS: [(&str, &str, &str); 2] =
    [("moviola-left", "mv-left", "10.213.7.1"), ("moviola-right", "mv-right", "10.213.7.2")];

/// What the link is shaped to.
const RATE: &str = "1gbit";

/// The least that the law must send over the link; without a link between them ranks send nothing.
const LEAST_BYTES: u64 = 1_000_000;

/// Makes the hosts, runs the law on them, cuts the link, and cleans up.
pub(crate) fn run(root: &Path) -> Result<()> {
    check::need_mpi(root)?;
    let hosts = Hosts::make(root)?;
    let tests = "--workspace --features moviola/mpi --test mpi";
    let run = |only: &str| -> Result<()> {
        let has_nextest = process::succeeds(&mut command("cargo", "nextest --version", root))?;
        let words = match has_nextest {
            true => format!("nextest run {tests} --run-ignored all {only}"),
            false => format!("test {tests} {only} -- --include-ignored"),
        };
        let mut tests = command("cargo", &words, root);
        tests.env("MOVIOLA_TEST_LAUNCHER", &hosts.launcher);
        process::run(tests.env("MOVIOLA_TEST_CUT", &hosts.cutter))
    };
    let before = hosts.bytes()?;
    run("processes_make_the_latents_of_one")?;
    let sent = hosts.bytes()? - before;
    println!("the law sent {:.1} MB over the link", sent as f64 / 1e6);
    ensure!(sent > LEAST_BYTES, "the ranks did not use the link: {sent} bytes went over it");
    run("processes_train_as_threads_do_and_go_on_as_threads")?;
    run("a_cut_link_ends_the_job")?;
    run("a_silent_link_ends_the_job")?;
    run("a_training_whose_link_is_cut")?;
    println!(
        "two hosts make and learn what one does, a cut link ends a job, and a training goes on after it"
    );
    Ok(())
}

/// Two hosts and what starts processes on them; gone when this is.
struct Hosts {
    root: PathBuf,
    folder: PathBuf,
    /// Takes the place of `mpirun`.
    launcher: PathBuf,
    /// Takes the link `down`, lets it fall into `silence`, or does `mend` it.
    cutter: PathBuf,
}

impl Hosts {
    fn make(root: &Path) -> Result<Hosts> {
        let folder = std::env::temp_dir().join(format!("moviola-hosts-{}", std::process::id()));
        fs::create_dir_all(&folder).context("no temporary folder can be made")?;
        let [launcher, cutter] = ["launcher", "cutter"].map(|name| folder.join(name));
        // Dropped, and so cleaned up, if a step below fails.
        let hosts = Hosts { root: root.to_owned(), folder, launcher, cutter };
        hosts.link()?;
        hosts.write_scripts()?;
        Ok(hosts)
    }

    /// The namespaces and the shaped link between them.
    fn link(&self) -> Result<()> {
        let why =
            "two hosts need Linux, root, and the programs ip, tc and unshare (on Debian: iproute2)";
        let [(left, near, _), (right, far, _)] = HOSTS;
        for host in [left, right] {
            self.run("ip", &format!("netns add {host}")).context(why)?;
        }
        self.run(
            "ip",
            &format!("link add {near} netns {left} type veth peer name {far} netns {right}"),
        )
        .context(why)?;
        for (host, interface, address) in HOSTS {
            self.run("ip", &format!("-n {host} addr add {address}/24 dev {interface}"))?;
            for device in [interface, "lo"] {
                self.run("ip", &format!("-n {host} link set {device} up"))?;
            }
            let shape = format!("dev {interface} root tbf rate {RATE} burst 128kb latency 50ms");
            self.run("ip", &format!("netns exec {host} tc qdisc add {shape}")).context(why)?;
        }
        // A launcher speaks to the other host by TCP and would wait for a cut link for a quarter of an hour: 13 seconds are
        // more than ranks wait for each other, so that ours is first to speak.
        for (host, ..) in HOSTS {
            let mut set = Command::new("ip");
            set.args(["netns", "exec", host, "sh", "-c"]);
            process::run(set.arg("echo 5 > /proc/sys/net/ipv4/tcp_retries2"))?;
        }
        let delay = format!("netns exec {left} tc qdisc add dev lo root netem delay 1ms");
        let has_delay = command("ip", &delay, &self.root).output()?.status.success();
        println!(
            "two hosts, joined by a link of {RATE} by tbf; {}",
            match has_delay {
                true => "this kernel has netem too, which is not used",
                false => "this kernel has no netem, so nothing is delayed",
            }
        );
        Ok(())
    }

    /// What `mpirun` is replaced by, what it reaches the other host with, and what cuts the link.
    fn write_scripts(&self) -> Result<()> {
        let agent = self.folder.join("agent");
        let enter = "ip netns exec \"$host\" unshare --uts sh -c";
        let script = format!(
            "#!/bin/sh\nhost=$1\nshift\nexec {enter} \"hostname $host; exec sh -c '$*'\"\n"
        );
        self.script(&agent, &script)?;
        let [(left, near, address), (right, ..)] = HOSTS;
        let network = address.rsplit_once('.').map_or("", |(network, _)| network);
        let only = ["btl_tcp_if_include", "oob_tcp_if_include"]
            .map(|key| format!("--mca {key} {network}.0/24"))
            .join(" ");
        let notice = "--mca oob_tcp_keepalive_time 3 --mca oob_tcp_keepalive_intvl 2";
        let script = format!(
            "#!/bin/sh\nhost={left}\nexec {enter} 'hostname {left}; exec mpirun --host {left}:4,{right}:4 \
             --map-by node --mca plm_rsh_agent {} --mca btl self,tcp {only} {notice} \"$@\"' mpirun \"$@\"\n",
            agent.display()
        );
        self.script(&self.launcher, &script)?;
        // In silence, packets go to a device where nobody takes them; unlike on a link that is down, no sender is told.
        let [(_, _, left_address), (_, _, right_address)] = HOSTS;
        let script = format!(
            "#!/bin/sh\nset -e\ncase \"$1\" in\n\
             down) ip -n {left} link set {near} down ;;\n\
             silence)\n  ip -n {left} route add {right_address}/32 dev lo\n  \
             ip -n {right} route add {left_address}/32 dev lo ;;\n\
             mend)\n  ip -n {left} link set {near} up\n  \
             ip -n {left} route del {right_address}/32 dev lo 2> /dev/null || true\n  \
             ip -n {right} route del {left_address}/32 dev lo 2> /dev/null || true ;;\n\
             *) echo \"down, silence or mend\" >&2; exit 2 ;;\nesac\n"
        );
        self.script(&self.cutter, &script)?;
        // Each host finds both by their names.
        let names: String =
            HOSTS.iter().map(|(host, _, address)| format!("{address} {host}\n")).collect();
        let known = fs::read_to_string("/etc/hosts").unwrap_or_default();
        for (host, ..) in HOSTS {
            let folder = Path::new("/etc/netns").join(host);
            fs::create_dir_all(&folder)?;
            fs::write(folder.join("hosts"), format!("{known}\n{names}"))?;
        }
        Ok(())
    }

    fn script(&self, path: &Path, text: &str) -> Result<()> {
        fs::write(path, text)?;
        self.run("chmod", &format!("+x {}", path.display()))
    }

    /// Bytes that both ends of the link have sent.
    fn bytes(&self) -> Result<u64> {
        let mut sum = 0;
        for (host, interface, _) in HOSTS {
            let file = format!("/sys/class/net/{interface}/statistics/tx_bytes");
            let mut read = Command::new("ip");
            read.args(["netns", "exec", host, "cat", &file]);
            let text = process::output(&mut read)?;
            sum += text.trim().parse::<u64>().context("the counter of the link is no number")?;
        }
        Ok(sum)
    }

    fn run(&self, program: &str, arguments: &str) -> Result<()> {
        let output = command(program, arguments, &self.root).output();
        let output = output.with_context(|| format!("{program} cannot be run"))?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                bail!("{program} {arguments}: {said}")
            }
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // What was not made cannot be removed; that is no reason to stop.
        for (host, ..) in HOSTS {
            let _ = command("ip", &format!("netns del {host}"), &self.root).output();
            let _ = fs::remove_dir_all(Path::new("/etc/netns").join(host));
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
