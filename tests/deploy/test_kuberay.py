"""The manifests of `deploy/kuberay`: by KubeRay's and Kubernetes' own schemas, and what they must say together.

What the API server doesn't know it drops without a word, so here an unknown field is a mistake. `kuberay_facts.yaml` says
which version of KubeRay the facts are of.
"""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError
from packaging.requirements import Requirement
from ray.scripts.scripts import cli
from ray.serve.schema import ServeDeploySchema
from referencing import Registry, Resource

from deploy.settings import EndpointSettings
from pipelines.settings.options import validate
from pipelines.settings.recipe import read_recipe
from tests.conftest import REPOSITORY
from tests.support.endpoints import free_port, ray_head, wait

FOLDER = REPOSITORY / "deploy" / "kuberay"
FACTS = Path(__file__).with_name("kuberay_facts.yaml")
KUBERNETES = "1.36"  # of KubeRay 1.7's go.mod: what it knows of pods
KUBERAY = "1.7"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
RAY = next(str(own.specifier)[2:] for own in map(Requirement, PROJECT["dependencies"]) if own.name == "ray")
GPU = "nvidia.com/gpu"


def _read() -> dict[str, Any]:
    """All documents but the kustomization, by kind and name."""
    names = sorted(path for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml")
    read = [document for path in names for document in yaml.safe_load_all(path.read_text())]
    return {f"{document['kind']}/{document['metadata']['name']}": document for document in read}


DOCUMENTS = _read()
KUSTOMIZATION: Any = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
CLUSTERS: dict[str, Any] = {
    "RayCluster": DOCUMENTS["RayCluster/assay"]["spec"],
    "RayJob": DOCUMENTS["RayJob/assay-corpus"]["spec"]["rayClusterSpec"],
    "RayService": DOCUMENTS["RayService/assay-endpoint"]["spec"]["rayClusterConfig"],
}


class Group(NamedTuple):
    """Pods of one kind in a cluster."""

    cluster: str
    name: str
    spec: Any

    def __str__(self) -> str:
        return f"{self.cluster}-{self.name}"

    @property
    def pod(self) -> Any:
        return self.spec["template"]["spec"]

    @property
    def labels(self) -> dict[str, str]:
        """With the one that KubeRay gives."""
        kind = "head" if self.name == "head" else "worker"
        return {**self.spec["template"]["metadata"]["labels"], "ray.io/node-type": kind}

    @property
    def container(self) -> Any:
        (own,) = self.pod["containers"]
        return own

    @property
    def gpus(self) -> int:
        return int(self.container["resources"]["limits"].get(GPU, 0))


HEADS = [Group(name, "head", spec["headGroupSpec"]) for name, spec in CLUSTERS.items()]
WORKERS = [Group(name, own["groupName"], own) for name, spec in CLUSTERS.items() for own in spec["workerGroupSpecs"]]
GROUPS = HEADS + WORKERS
SUBMITTER = Group("RayJob", "submitter", {"template": DOCUMENTS["RayJob/assay-corpus"]["spec"]["submitterPodTemplate"]})


# Schemas.


def validate_object(document: Any) -> None:
    """Raise `ValidationError` for what the API server would refuse, or drop."""
    if document["apiVersion"].startswith("ray.io/"):
        Draft202012Validator({"$ref": f"urn:facts#/{document['kind']}"}, registry=_registry()).validate(document)
    else:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def _registry() -> Any:
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{KUBERNETES}.0-local-strict"
    definitions = json.loads((folder / "_definitions.json").read_text())
    facts = {"$schema": definitions["$schema"], "$id": "urn:facts", **yaml.safe_load(FACTS.read_text())}
    return [Resource.from_contents(definitions), Resource.from_contents(facts)] @ Registry()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_document_is_what_its_schema_says(name: str) -> None:
    validate_object(DOCUMENTS[name])


HEAD = "spec.headGroupSpec.template"


@pytest.mark.parametrize(
    ("name", "path", "value", "message"),
    [
        ("RayCluster/assay", "spec.workerGroups", [], "'workerGroups' was unexpected"),
        ("RayCluster/assay", "spec.authOptions.mode", "tokens", "'tokens' is not one of"),
        ("RayCluster/assay", "spec.workerGroupSpecs.1.maxReplicas", "4", "'4' is not of type 'integer'"),
        ("RayCluster/assay", "spec.workerGroupSpecs.0.groupName", None, "'groupName' is a required property"),
        ("RayCluster/assay", "spec.headGroupSpec.rayStartParams.num-cpus", 0, "0 is not of type 'string'"),
        ("RayCluster/assay", "spec.autoscalerOptions.securityContext.priviliged", False, "'priviliged' was unexpected"),
        ("RayCluster/assay", f"{HEAD}.metadata.generateName", "a-", "'generateName' was unexpected"),
        ("RayCluster/assay", f"{HEAD}.spec.containers.0.resource", {}, "'resource' was unexpected"),
        ("RayCluster/assay", f"{HEAD}.spec.containers.0.ports.0.containerPort", "6379", "'6379' is not of type 'integer'"),
        ("RayJob/assay-corpus", "spec.backofflimit", 2, "'backofflimit' was unexpected"),
        ("RayJob/assay-corpus", "spec.submitterPodTemplate.spec.containers.0.name", None, "'name' is a required property"),
        ("RayJob/assay-corpus", "spec.rayClusterSpec.rayVersion", 2.6, "2.6 is not of type 'string'"),
        ("RayService/assay-endpoint", "spec.rayClusterSpec", {}, "'rayClusterSpec' was unexpected"),
        ("RayService/assay-endpoint", "spec.serveConfigV2", {}, "{} is not of type 'string'"),
        ("NetworkPolicy/assay", "spec.ingress.0.port", [], "'port' was unexpected"),
        ("ConfigMap/assay-recipe", "dat", {}, "'dat' was unexpected"),
        ("Namespace/assay", "metadata.lables", {}, "'lables' was unexpected"),
    ],
)
def test_a_slip_of_the_pen_is_found(name: str, path: str, value: Any, message: str) -> None:
    document = copy.deepcopy(DOCUMENTS[name])
    *way, last = (int(step) if step.isdigit() else step for step in path.split("."))
    place: Any = document
    for step in way:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    with pytest.raises(ValidationError, match=re.escape(message)):
        validate_object(document)


def test_kustomize_puts_it_all_into_one_namespace_and_one_image() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl isn't installed")
    done = subprocess.run(["kubectl", "kustomize", FOLDER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = {f"{document['kind']}/{document['metadata']['name']}": document for document in yaml.safe_load_all(done.stdout)}
    assert set(built) == set(DOCUMENTS)
    for name, document in built.items():
        validate_object(document)
        assert document["metadata"].get("namespace") == (None if name == "Namespace/assay" else "assay")
    assert set(_values(built, "image")) == {f"{KUSTOMIZATION['images'][0]['newName']}:{PROJECT['version']}-gpu"}


# Versions.


def test_versions_and_images_are_this_projects() -> None:
    (image,) = KUSTOMIZATION["images"]
    assert image["newTag"] == f"{PROJECT['version']}-gpu"
    assert set(_values(DOCUMENTS, "image")) == {f"{image['name']}:{image['newTag']}"}
    assert {spec["rayVersion"] for spec in CLUSTERS.values()} == {RAY}
    told = (FOLDER / "kustomization.yaml").read_text()
    assert f"KubeRay {KUBERAY}:" in told
    assert f"--version {KUBERAY}.0 " in told
    assert f"assay:{image['newTag']} ." in told
    assert FACTS.read_text().startswith(f"# Facts from the CRDs of KubeRay v{KUBERAY}.0,")
    assert set(KUSTOMIZATION["resources"]) == {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}


# What KubeRay takes beyond its schema: its controller refuses such an object, or it never becomes ready.


def test_names_leave_room_for_what_kuberay_adds() -> None:
    for name in DOCUMENTS:
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name.partition("/")[2])
        assert len(name.partition("/")[2]) <= 47


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_kuberay_sets_what_starts_and_restarts_a_container(group: Group) -> None:
    assert "restartPolicy" not in group.pod, "the autoscaler's v2 wants Never, which KubeRay puts there"
    assert not {"command", "args", "livenessProbe", "readinessProbe", "startupProbe"} & set(group.container)
    ours = set(group.spec["rayStartParams"])
    assert ours <= {name for option in cli.commands["start"].params for name in _flags(option)}
    assert ours & {"num-cpus", "num-gpus", "memory"} == ({"num-cpus"} if group in HEADS else set()), "the limits say it"


def _flags(option: Any) -> list[str]:
    return [flag.removeprefix("--") for flag in option.opts]


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_a_head_runs_no_tasks_and_has_the_ports_that_kuberay_looks_for(head: Group) -> None:
    assert head.spec["rayStartParams"]["num-cpus"] == "0"
    assert head.gpus == 0
    serve = {"serve": 8000} if head.cluster == "RayService" else {}
    assert _ports(head) == {"gcs-server": 6379, "dashboard": 8265, "metrics": 8080} | serve


@pytest.mark.parametrize("group", WORKERS, ids=str)
def test_workers_are_as_many_as_may_be(group: Group) -> None:
    assert 0 <= group.spec["minReplicas"] <= group.spec["replicas"] <= group.spec["maxReplicas"]
    assert group.spec["maxReplicas"] > 0


def test_the_autoscaler_is_on() -> None:
    for spec in CLUSTERS.values():
        assert spec["enableInTreeAutoscaling"] is True
        assert spec["autoscalerOptions"]["version"] == "v2"
        assert spec["autoscalerOptions"]["idleTimeoutSeconds"] >= 300


# Pods.


@pytest.mark.parametrize("group", [*GROUPS, SUBMITTER], ids=str)
def test_a_pod_gets_what_it_asks_for(group: Group) -> None:
    resources = group.container["resources"]
    assert resources["requests"] == resources["limits"], "GPUs must be equal, and of memory the limit is what Ray is told of"
    assert set(resources["limits"]) - {GPU} == {"cpu", "memory"}
    for amount in resources["limits"].values():
        assert re.fullmatch(r"\d+(m|Mi|Gi)?", amount)
    if group.gpus:
        tolerated = {own["key"] for own in group.pod["tolerations"]}
        assert GPU in tolerated, "nodes with GPUs are tainted"


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_objects_are_in_memory_and_spill_into_a_volume(group: Group) -> None:
    volumes = {own["name"]: own for own in group.pod["volumes"]}
    mounted = {own["mountPath"]: volumes[own["name"]] for own in group.container["volumeMounts"]}
    assert mounted["/dev/shm"]["emptyDir"] == {"medium": "Memory"}
    assert mounted["/scratch"]["emptyDir"]["sizeLimit"]
    assert group.spec["rayStartParams"]["object-spilling-directory"].startswith("/scratch/")
    assert _environment(group)["HF_HOME"].startswith("/scratch/")


def test_no_pod_has_a_privilege() -> None:
    """What Kubernetes' `restricted` level asks for, which the namespace enforces, of every pod that we describe."""
    assert DOCUMENTS["Namespace/assay"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for group in [*GROUPS, SUBMITTER]:
        security = group.pod["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] == 1000
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(group.pod)
        assert all({"emptyDir", "configMap"} & set(volume) for volume in group.pod.get("volumes", []))
        assert group.pod["automountServiceAccountToken"] is (group in HEADS), "the autoscaler beside a head asks Kubernetes"
    contexts = [group.container["securityContext"] for group in [*GROUPS, SUBMITTER]]
    contexts += [spec["autoscalerOptions"]["securityContext"] for spec in CLUSTERS.values()]
    for context in contexts:
        assert context == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize("group", WORKERS, ids=str)
def test_a_worker_that_is_taken_is_drained_first(group: Group) -> None:
    bash, flag, script = group.container["lifecycle"]["preStop"]["exec"]["command"]
    assert (bash, flag) == ("bash", "-c")
    said = subprocess.run(
        ["bash", "-c", f'ray() {{ printf "%s\\n" "$@"; }}; sleep() {{ echo "$1"; }}; {script}'],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    command, *arguments, slept = said
    told: Any = cli.commands[command].make_context(command, arguments).params  # click refuses an unknown flag or reason
    assert command == "drain-node"
    assert told["deadline_remaining_seconds"] == int(slept) < group.pod["terminationGracePeriodSeconds"]


# Secrets.


def test_ray_asks_for_its_token_everywhere() -> None:
    for spec in CLUSTERS.values():
        assert spec["authOptions"] == {"mode": "token", "secretName": "assay-ray"}


def test_secrets_are_those_that_the_commands_make_and_none_is_written_down() -> None:
    told = (FOLDER / "kustomization.yaml").read_text()
    made = dict(re.findall(r"create secret generic (\S+) --from-\S+?=(\S+?)(?:=|$)", told, re.MULTILINE))
    references = [own["secretRef"]["name"] for own in _values(DOCUMENTS, "envFrom", flat=True)]
    references += [own["secretName"] for own in _values(DOCUMENTS, "authOptions")]
    assert set(references) == set(made)
    assert made["assay-ray"] == "auth_token", "the key that KubeRay reads"
    assert made["assay-keys"] == "ASSAY_API_KEYS", "the variable that the ingress reads"
    assert not any(name.startswith("Secret/") for name in DOCUMENTS)
    for group in [*GROUPS, SUBMITTER]:
        for name, value in _environment(group).items():
            assert not re.search("KEY|TOKEN|SECRET|PASSWORD", name), f"{name}={value}"


def test_pods_have_the_secrets_that_they_need() -> None:
    for group in GROUPS:
        secrets = {own["secretRef"]["name"]: own["secretRef"].get("optional", False) for own in group.container["envFrom"]}
        needed = "assay-keys" if group.cluster == "RayService" else "assay-store"
        assert secrets == {needed: False, "assay-hub": True}
    assert "envFrom" not in SUBMITTER.container, "it only sends a command line; KubeRay gives it Ray's token"


# The job.


def test_the_recipe_is_one_and_its_engines_fit(tmp_path: Path) -> None:
    (name, text), = DOCUMENTS["ConfigMap/assay-recipe"]["data"].items()  # fmt: skip
    (tmp_path / name).write_text(text)
    recipe = read_recipe(str(tmp_path / name))
    score, kept = recipe.score, recipe.filter
    assert score is not None
    assert kept is not None
    assert kept.scored == score.output
    assert not score.overwrite, "it would begin anew at every retry"

    (gpu,) = (group for group in WORKERS if group.cluster == "RayJob" and group.gpus)
    assert score.engine.autoscaled, "at its start the cluster has no GPU"
    assert score.engine.pipeline_parallel == 1
    assert gpu.gpus % score.engine.tensor_parallel == 0
    assert (score.work.max_replicas or 0) * score.engine.tensor_parallel == gpu.gpus * gpu.spec["maxReplicas"]


def test_the_job_runs_the_recipe_that_is_mounted_and_may_be_tried_again() -> None:
    job = DOCUMENTS["RayJob/assay-corpus"]["spec"]
    head = next(group for group in HEADS if group.cluster == "RayJob")
    (volume,) = (own for own in head.pod["volumes"] if "configMap" in own)
    (mount,) = (own for own in head.container["volumeMounts"] if own["name"] == volume["name"])
    (file,) = DOCUMENTS[f"ConfigMap/{volume['configMap']['name']}"]["data"]
    assert job["entrypoint"] == f"assay run {mount['mountPath']}/{file}"
    assert job["submissionMode"] == "K8sJobMode", "the CRD takes any text"
    assert job["backoffLimit"] > 0
    assert job["submitterConfig"]["backoffLimit"] > 0
    assert job["shutdownAfterJobFinishes"] is True
    assert job["ttlSecondsAfterFinished"] > 0
    assert SUBMITTER.pod["restartPolicy"] == "Never", "a Job takes Never or OnFailure"


# The endpoint.


SERVICE = DOCUMENTS["RayService/assay-endpoint"]["spec"]
CONFIG: Any = yaml.safe_load(SERVICE["serveConfigV2"])


def test_the_endpoint_is_that_of_serve_yaml() -> None:
    schema = ServeDeploySchema.model_validate(CONFIG)
    (application,) = schema.applications
    settings = validate(EndpointSettings, application.args)
    assert not settings.access.open
    assert SERVICE["rayClusterDeletionDelaySeconds"] == settings.limits.answer_timeout_s
    assert SERVICE["excludeHeadPodFromServeSvc"] is True

    ours, other = copy.deepcopy(CONFIG), yaml.safe_load((REPOSITORY / "deploy" / "serve.yaml").read_text())
    for config in (ours, other):
        for model in config["applications"][0]["args"]["models"]:
            model["model"] = "M"
            model["names"] = ["M"]
            model["engine"].pop("autoscaled", None)
    assert ours == other


def test_there_are_as_many_gpus_as_replicas_ask_for() -> None:
    models = validate(EndpointSettings, CONFIG["applications"][0]["args"]).models
    (gpu,) = (group for group in WORKERS if group.cluster == "RayService" and group.gpus)
    assert all(gpu.gpus % own.engine.tensor_parallel == 0 for own in models)
    most = sum(own.scaling.max_replicas * own.engine.tensor_parallel for own in models)
    assert most == gpu.gpus * gpu.spec["maxReplicas"]
    least = sum(own.scaling.min_replicas * own.engine.tensor_parallel for own in models)
    assert least == gpu.gpus * gpu.spec["minReplicas"]


@pytest.mark.long
def test_the_endpoint_asks_for_its_gpus_on_a_cluster_that_has_none_yet(tmp_path: Path) -> None:
    config = copy.deepcopy(CONFIG)
    config["http_options"] |= {"host": "127.0.0.1", "port": free_port()}
    (model,) = config["applications"][0]["args"]["models"]
    model["model"] = "tiny-attributes"
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(config))
    guarded = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a-token-of-rays-" * 4, "ASSAY_API_KEYS": "a-key-of-more-than-16"}
    with ray_head(**guarded) as dashboard:
        environment = os.environ | guarded | {"RAY_DASHBOARD_ADDRESS": dashboard}
        done = subprocess.run(
            [Path(sys.executable).parent / "serve", "deploy", file],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

        def deployments() -> dict[str, Any]:
            token = {"Authorization": f"Bearer {guarded['RAY_AUTH_TOKEN']}"}
            told = httpx.get(f"{dashboard}/api/serve/applications/", headers=token, timeout=60).json()
            application = told["applications"].get("assay", {})
            assert application.get("status") != "DEPLOY_FAILED", application["message"]
            found: dict[str, Any] = application.get("deployments", {})
            return found

        wait(lambda: "model-0" in deployments())
        options = deployments()["model-0"]["deployment_config"]["ray_actor_options"]
        assert options["num_gpus"] == model["engine"]["tensor_parallel"]


# Who reaches whom.


POLICIES = {name: own["spec"] for name, own in DOCUMENTS.items() if name.startswith("NetworkPolicy/")}


def test_every_pod_is_closed_both_ways_and_open_to_its_own() -> None:
    base = POLICIES["NetworkPolicy/assay"]
    assert set(base["policyTypes"]) == {"Ingress", "Egress"}
    assert base["ingress"] == [{"from": [{"podSelector": base["podSelector"]}]}]
    for group in GROUPS:
        assert _selects(base, group.labels)
    assert _selects(base, SUBMITTER.spec["template"]["metadata"]["labels"])


def test_a_port_that_is_open_is_one_of_a_container_and_open_to_few() -> None:
    opened = {}
    for name, policy in POLICIES.items():
        selected = [group for group in GROUPS if _selects(policy, group.labels)]
        assert selected, f"{name} is of no pod"
        for rule in policy.get("ingress", []):
            assert rule["from"], "a rule without `from` lets everybody in"
            assert all(peer and all(selector for selector in peer.values()) for peer in rule["from"]), "or an empty selector"
            for port in rule.get("ports", []):
                assert all(port["port"] in _ports(group).values() for group in selected), f"{name}: {port}"
                opened[port["port"]] = {group.cluster for group in selected}, {group.name for group in selected}
    everywhere = set(CLUSTERS), {group.name for group in GROUPS}
    assert opened == {
        8265: (set(CLUSTERS), {"head"}),
        8000: ({"RayService"}, {group.name for group in GROUPS if group.cluster == "RayService"}),
        8080: everywhere,
    }
    assert CONFIG["http_options"]["port"] in opened


def test_the_dashboard_is_open_to_the_operator_alone() -> None:
    (rule,) = POLICIES["NetworkPolicy/assay-head"]["ingress"]
    told = (FOLDER / "kustomization.yaml").read_text()
    (peer,) = rule["from"]
    (namespace,) = peer["namespaceSelector"]["matchLabels"].values()
    assert f"helm install kuberay-operator kuberay/kuberay-operator --version {KUBERAY}.0 --namespace {namespace} " in told
    assert peer["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "kuberay-operator"}, "as its chart labels it"


def test_pods_reach_names_stores_and_kubernetes() -> None:
    ports = {
        name: sorted({(own["port"], own["protocol"]) for rule in policy.get("egress", []) for own in rule.get("ports", [])})
        for name, policy in POLICIES.items()
    }
    assert ports["NetworkPolicy/assay"] == [(53, "TCP"), (53, "UDP"), (443, "TCP")]
    assert ports["NetworkPolicy/assay-head"] == [(6443, "TCP")]
    assert not ports["NetworkPolicy/assay-endpoint"]


def _selects(policy: Any, labels: dict[str, str]) -> bool:
    wanted: dict[str, str] = policy["podSelector"]["matchLabels"]
    return wanted.items() <= labels.items()


def _ports(group: Group) -> dict[str, int]:
    return {own["name"]: own["containerPort"] for own in group.container["ports"]}


def _environment(group: Group) -> dict[str, str]:
    return {own["name"]: own.get("value", "") for own in group.container.get("env", [])}


def _values(document: Any, key: str, *, flat: bool = False) -> Iterator[Any]:
    """What stands under a key, wherever it is."""
    below = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for name, value in below:
        if name == key:
            yield from value if flat else [value]
        else:
            yield from _values(value, key, flat=flat)
