"""The manifests of `deploy/kuberay`: by KubeRay's and Kubernetes' own schemas, and what they must say together.

What the API server doesn't know it drops without a word, so here an unknown field is a mistake. `kuberay_facts.yaml` says
which version of KubeRay the facts are of.
"""

import copy
import json
import os
import re
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
from jsonschema import Draft202012Validator
from packaging.requirements import Requirement
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
RAY = next(str(item.specifier)[2:] for item in map(Requirement, PROJECT["dependencies"]) if item.name == "ray")
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
        (item,) = self.pod["containers"]
        return item

    @property
    def gpus(self) -> int:
        return int(self.container["resources"]["limits"].get(GPU, 0))


HEADS = [Group(name, "head", spec["headGroupSpec"]) for name, spec in CLUSTERS.items()]
WORKERS = [Group(name, item["groupName"], item) for name, spec in CLUSTERS.items() for item in spec["workerGroupSpecs"]]
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


def test_every_document_is_what_its_schema_says() -> None:
    for name in DOCUMENTS:
        validate_object(DOCUMENTS[name])


# Versions.


def test_versions_and_images_are_this_projects() -> None:
    (image,) = KUSTOMIZATION["images"]
    assert image["newTag"] == "gpu"
    assert set(_values(DOCUMENTS, "image")) == {f"{image['name']}:{image['newTag']}"}
    assert {spec["rayVersion"] for spec in CLUSTERS.values()} == {RAY}
    text = (FOLDER / "kustomization.yaml").read_text()
    assert f"KubeRay {KUBERAY}:" in text
    assert f"--version {KUBERAY}.0 " in text
    assert f"assay:{image['newTag']} ." in text
    assert FACTS.read_text().startswith(f"# Facts from the CRDs of KubeRay v{KUBERAY}.0,")
    assert set(KUSTOMIZATION["resources"]) == {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}


# Pods.


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


# Secrets.


def test_secrets_are_those_that_the_commands_make_and_none_is_written_down() -> None:
    text = (FOLDER / "kustomization.yaml").read_text()
    made = dict(re.findall(r"create secret generic (\S+) --from-\S+?=(\S+?)(?:=|$)", text, re.MULTILINE))
    references = [value["secretRef"]["name"] for value in _values(DOCUMENTS, "envFrom", flat=True)]
    references += [value["secretName"] for value in _values(DOCUMENTS, "authOptions")]
    assert set(references) == set(made)
    assert made["assay-ray"] == "auth_token", "the key that KubeRay reads"
    assert made["assay-keys"] == "ASSAY_API_KEYS", "the variable that the ingress reads"
    assert not any(name.startswith("Secret/") for name in DOCUMENTS)
    for group in [*GROUPS, SUBMITTER]:
        for name, value in _environment(group).items():
            assert not re.search("KEY|TOKEN|SECRET|PASSWORD", name), f"{name}={value}"


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
    assert all(gpu.gpus % model.engine.tensor_parallel == 0 for model in models)
    most = sum(model.scaling.max_replicas * model.engine.tensor_parallel for model in models)
    assert most == gpu.gpus * gpu.spec["maxReplicas"]
    least = sum(model.scaling.min_replicas * model.engine.tensor_parallel for model in models)
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
            body = httpx.get(f"{dashboard}/api/serve/applications/", headers=token, timeout=60).json()
            application = body["applications"].get("assay", {})
            assert application.get("status") != "DEPLOY_FAILED", application["message"]
            answer: dict[str, Any] = application.get("deployments", {})
            return answer

        wait(lambda: "model-0" in deployments())
        options = deployments()["model-0"]["deployment_config"]["ray_actor_options"]
        assert options["num_gpus"] == model["engine"]["tensor_parallel"]


# Who reaches whom.


POLICIES = {name: document["spec"] for name, document in DOCUMENTS.items() if name.startswith("NetworkPolicy/")}


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


def _selects(policy: Any, labels: dict[str, str]) -> bool:
    wanted: dict[str, str] = policy["podSelector"]["matchLabels"]
    return wanted.items() <= labels.items()


def _ports(group: Group) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in group.container["ports"]}


def _environment(group: Group) -> dict[str, str]:
    return {item["name"]: item.get("value", "") for item in group.container.get("env", [])}


def _values(document: Any, key: str, *, flat: bool = False) -> Iterator[Any]:
    """What stands under a key, wherever it is."""
    below = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for name, value in below:
        if name == key:
            yield from value if flat else [value]
        else:
            yield from _values(value, key, flat=flat)
