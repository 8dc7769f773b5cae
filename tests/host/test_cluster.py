# SPDX-License-Identifier: Apache-2.0
"""What started several processes, and which GPUs each of them has."""

import os
import subprocess
import sys

import jax
import pytest
from absl import flags
from jax._src import clusters

from electra_jax.cli import distributed
from electra_jax.host import cluster, error_causes, joining, peers
from support.commands import free_port
from support.corpus import ROOT

# What each of them sets for the third of four processes.
SLURM = {
    "SLURM_JOB_ID": "4097",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NODELIST": "node[07-08]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}
ORTE = {"OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911"}
GKE_TPU = {"TPU_WORKER_HOSTNAMES": "localhost,b,c,d", "TPU_WORKER_ID": "2"}


@pytest.fixture
def surroundings(monkeypatch):
    """Sets the variables of a cluster and none of another; `tpu=True`: a machine with chips."""
    for name in list(os.environ):
        if name.startswith(("SLURM_", "OMPI_", "TPU_", "MEGASCALE_", "KUBERNETES_", "JAX_COORD")):
            monkeypatch.delenv(name)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def be(variables, tpu=False):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(cluster, "on_tpu", lambda: tpu)
        monkeypatch.setattr("jax._src.clusters.cluster.running_in_cloud_tpu_vm", tpu)
        monkeypatch.setattr("jax._src.clusters.cloud_tpu_cluster.running_in_cloud_tpu_vm", tpu)
        tpus = "jax._src.clusters.cloud_tpu_cluster"
        monkeypatch.setattr(f"{tpus}.get_metadata", lambda key: ("not found", 404))
        monkeypatch.setattr(cluster, "_METADATA_PAUSE", 0)

    return be


@pytest.mark.parametrize(
    ("variables", "tpu", "coordinator"),
    [
        (SLURM, False, "node07:61441"),
        (OPEN_MPI | ORTE, False, "10.96.0.1:62624"),
        (OPEN_MPI | {"JAX_COORDINATOR_ADDRESS": "a:1"}, False, "a:1"),
        (GKE_TPU, True, "localhost:8482"),
        (GKE_TPU | {"KUBERNETES_SERVICE_HOST": "k", "JOB_COMPLETION_INDEX": "2"}, True, None),
    ],
)
def test_processes_of_a_cluster_find_each_other_without_flags(
    surroundings, variables, tpu, coordinator
):
    surroundings(variables, tpu)
    found = cluster.find(5)
    assert found == peers.Address(coordinator or "localhost:8482", count=4, me=2)


def fails(error):
    def ask(*_):
        raise error

    return ask


@pytest.mark.parametrize(
    ("variables", "tpu"),
    [
        ({}, False),
        ({"SLURM_NTASKS": "1"}, False),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, False),
        ({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, False),  # a batch script
        ({"TPU_SKIP_MDS_QUERY": "1"}, True),  # jax: "coordinator_address should be defined"
        ({"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}, True),
        ({"KUBERNETES_SERVICE_HOST": "k"}, False),  # a notebook in a pod
    ],
)
def test_without_others_there_is_one_process(surroundings, variables, tpu):
    surroundings(variables, tpu)
    assert cluster.find(5) is None


def test_a_tpu_whose_metadata_cannot_be_read_is_used_by_one_process(surroundings, monkeypatch):
    """A notebook has chips, and no server of Compute Engine's metadata."""
    asked = []

    def metadata(key):
        asked.append(key)
        raise ConnectionError("metadata.google.internal is not known")

    surroundings({}, tpu=True)
    monkeypatch.setattr("jax._src.clusters.cloud_tpu_cluster.get_metadata", metadata)
    assert cluster.find(5) is None
    assert len(asked) == cluster._METADATA_TRIES


@pytest.mark.parametrize(
    ("variables", "tpu", "words"),
    [
        (
            OPEN_MPI,
            False,
            "Open MPI started this process, and jax cannot find the others (it",
        ),
        (OPEN_MPI, False, "set JAX_COORDINATOR_ADDRESS to its HOST:PORT"),
        ({**SLURM, "SLURM_JOB_ID": "x"}, False, "Slurm started this process, and jax cannot find"),
        ({**GKE_TPU, "TPU_WORKER_ID": "x"}, True, "TPU started this process"),
        (
            {"KUBERNETES_SERVICE_HOST": "k", "JOB_COMPLETION_INDEX": "1"},
            False,
            "jax needs its extra for it (pip install 'jax[k8s]')",
        ),
    ],
)
def test_others_that_cannot_be_found_are_an_error_with_a_remedy(
    surroundings, monkeypatch, variables, tpu, words
):
    surroundings(variables, tpu)
    monkeypatch.setattr(clusters.K8sCluster, "is_env_present", classmethod(lambda _: False))
    with pytest.raises(joining.PeersError) as refused:
        cluster.find(5)
    said = str(refused.value)
    assert words in said and "\n" not in said
    assert said.endswith("or --num_processes=1 if it is alone")


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"])
def test_a_number_of_processes_that_is_none_is_named(surroundings, name):
    surroundings({name: "x"}, False)
    with pytest.raises(joining.PeersError, match=f"^{name}='x' is no number of processes; unset"):
        cluster.find(5)


def test_a_newer_jax_that_is_asked_in_another_way_starts_by_itself(surroundings, monkeypatch):
    surroundings(SLURM)
    started = []
    monkeypatch.setattr(
        clusters.ClusterEnv, "auto_detect_unset_distributed_params", fails(TypeError("one more"))
    )
    monkeypatch.setattr("jax.distributed.initialize", lambda: started.append(1))
    assert cluster.find(5) is None and started
    # On a TPU alone it ends in this error.
    error = ValueError("coordinator_address should be defined.")
    monkeypatch.setattr("jax.distributed.initialize", fails(error))
    with pytest.raises(ValueError, match="coordinator_address"):
        cluster.find(5)
    for name in SLURM:
        monkeypatch.delenv(name)
    surroundings({}, tpu=True)
    assert cluster.find(5) is None


TWO_TASKS = SLURM | {"SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "1,2"}


@pytest.mark.parametrize(
    ("variables", "mine"),
    [
        ({}, None),
        # One task a node has all of its GPUs; jax by itself would take the first alone.
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "1(x2)", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}, None),
        # Two tasks on the second node share what both see.
        (TWO_TASKS | {"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}, [2, 3]),
        (TWO_TASKS | {"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "0,1"}, [1]),
        # srun --gpus-per-task: each sees its own alone, which it knows by the first numbers.
        (TWO_TASKS | {"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "2,3"}, None),
        (TWO_TASKS | {"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "1"}, None),
        (TWO_TASKS | {"CUDA_VISIBLE_DEVICES": ""}, None),
        (OPEN_MPI | {"CUDA_VISIBLE_DEVICES": "4,5"}, [0]),
        (OPEN_MPI | {"CUDA_VISIBLE_DEVICES": "4,5", "JAX_LOCAL_DEVICE_IDS": "1"}, None),
    ],
)
def test_the_gpus_of_a_process(variables, mine):
    assert cluster.gpus(variables) == mine


@pytest.mark.parametrize(
    "visible, count",
    [("", 0), ("-1", 0), ("NoDevFiles", 0), ("0", 1), ("2, 3", 2), ("0,-1,1", 1), ("GPU-89", 1)],
)
def test_gpus_are_counted_as_cuda_counts_them(visible, count):
    assert cluster._seen({"CUDA_VISIBLE_DEVICES": visible}) == count


def test_gpus_that_cannot_be_shared_evenly_are_refused():
    with pytest.raises(joining.PeersError, match="2 processes of this machine cannot share its 3"):
        cluster.gpus(TWO_TASKS | {"CUDA_VISIBLE_DEVICES": "0,1,2"})


LEFT_TO_JAX = """
import jax
from electra_jax.host import peers
peers.join(peers.Address("127.0.0.1:{port}", 1, 0))
assert jax.process_count() == 1
print("devices", jax.config.read("jax_cuda_visible_devices"))
"""


def test_jax_does_not_take_gpus_away_under_slurm():
    """jax.distributed would ask Slurm once more, and leave the first task of a node one GPU."""
    done = subprocess.run(
        [sys.executable, "-c", LEFT_TO_JAX.format(port=free_port())],
        cwd=ROOT, env=os.environ | SLURM, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "devices all\n", done.stderr


def test_one_process_may_be_asked_for_whatever_started_it(tmp_path):
    """Without the flag this would be an error: Open MPI 5 does not say where process 0 is."""
    line = [sys.executable, "-m", "electra_jax.main", "--config=configs/tiny.py", "--dry_run"]
    outcomes = [
        subprocess.run(
            [*line, f"--workdir={tmp_path / 'run'}", *more],
            cwd=ROOT, env=os.environ | OPEN_MPI, capture_output=True, text=True,
        )
        for more in ([], ["--num_processes=1"])
    ]  # fmt: skip
    assert outcomes[0].returncode == 2
    assert "error: Open MPI started this process" in outcomes[0].stderr
    assert outcomes[1].returncode == 0, outcomes[1].stderr


@pytest.fixture
def tpu_machine(monkeypatch):
    """A machine whose chips jax has found on the PCI bus; sets what opening them gives."""
    monkeypatch.setattr("jax._src.cloud_tpu_init.running_in_cloud_tpu_vm", True)
    before = jax.config.jax_platforms
    jax.config.update("jax_platforms", "tpu,cpu")  # as jax itself sets it there

    def opens(answer):
        monkeypatch.setattr(jax, "default_backend", answer)

    yield opens
    jax.config.update("jax_platforms", before)


def busy():
    raise RuntimeError("Unable to initialize backend 'tpu': The TPU is already in use")


@pytest.mark.parametrize("answer", [busy, lambda: "cpu"])
def test_a_tpu_that_cannot_be_opened_is_an_error_that_may_pass(tpu_machine, answer):
    """Who comes a second later may find the chips free; nobody computes on the CPU instead."""
    tpu_machine(answer)
    with pytest.raises(error_causes.MayPass, match="has a TPU, and jax could not open it") as error:
        cluster.check_chips_are_free()
    assert ("already in use" in str(error.value)) == (answer is busy)


def test_a_tpu_that_opens_or_is_not_asked_for_is_no_error(tpu_machine):
    tpu_machine(lambda: "tpu")
    cluster.check_chips_are_free()
    tpu_machine(busy)
    for platforms in ("cpu", "cpu,tpu"):  # also what JAX_PLATFORMS sets
        jax.config.update("jax_platforms", platforms)
        cluster.check_chips_are_free()


@pytest.fixture
def gpu_machine(monkeypatch):
    """A machine on which a GPU is seen; sets whether jax has a plugin, and what opening gives."""
    monkeypatch.setattr(cluster, "on_tpu", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    before = jax.config.jax_platforms
    jax.config.update("jax_platforms", None)

    def opens(answer, plugin):
        monkeypatch.setattr(jax, "default_backend", answer)
        monkeypatch.setattr(cluster, "_CUDA_PLUGINS", ("json" if plugin else "no_such_module",))

    yield opens
    jax.config.update("jax_platforms", before)


def test_nobody_computes_on_the_cpu_of_a_machine_with_a_gpu_unknowingly(gpu_machine, caplog):
    gpu_machine(lambda: "cpu", plugin=True)
    with pytest.raises(cluster.BusyError, match="has a GPU, and jax could not open it: another"):
        cluster.check_chips_are_free()

    gpu_machine(lambda: "cpu", plugin=False)
    cluster.check_chips_are_free()
    assert "computed on the CPU, since jax has no plugin" in caplog.text


def test_a_gpu_that_opens_or_is_not_asked_for_is_nothing_to_speak_of(
    gpu_machine, monkeypatch, caplog
):
    gpu_machine(lambda: "gpu", plugin=True)
    cluster.check_chips_are_free()

    gpu_machine(lambda: "cpu", plugin=True)
    jax.config.update("jax_platforms", "cpu")  # as JAX_PLATFORMS sets it
    cluster.check_chips_are_free()
    jax.config.update("jax_platforms", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # nobody sees a GPU
    cluster.check_chips_are_free()
    assert not caplog.text


def test_devices_of_processes_that_were_not_joined_are_refused(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    with pytest.raises(joining.PeersError, match="devices of 4 processes that do not know each"):
        cluster.check_processes_are_joined()
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    cluster.check_processes_are_joined()


@pytest.mark.parametrize(("tpu", "said"), [(True, True), (False, False)])
def test_who_waits_in_vain_on_a_tpu_hears_how_one_worker_does_without(monkeypatch, tpu, said):
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()

    def join(address, seconds):
        raise joining.LateError("processes 1 and 2 of 3 did not come")

    monkeypatch.setattr(cluster, "find", lambda seconds: peers.Address("a:1", count=3, me=0))
    monkeypatch.setattr(cluster, "on_tpu", lambda: tpu)
    monkeypatch.setattr(peers, "join", join)
    with pytest.raises(joining.LateError, match="processes 1 and 2 of 3 did not come") as late:
        distributed.start_processes()
    assert ("a command for this worker alone needs JAX_PLATFORMS=cpu" in str(late.value)) == said
