"""Takes from KubeRay's CRDs what `test_kuberay.py` needs of them: field names, types, enums and what is required.

    git clone --depth 1 --branch v1.7.0 https://github.com/ray-project/kuberay
    python tests/deploy/kuberay_facts.py kuberay/helm-chart/kuberay-operator/crds v1.7.0 > tests/deploy/kuberay_facts.yaml

The result is a JSON schema that refuses unknown fields. Where a CRD repeats a type of Kubernetes' own, it names that type.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

KINDS = {"RayCluster": "rayclusters", "RayJob": "rayjobs", "RayService": "rayservices"}
_CLUSTER_IN = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}
KUBERNETES = "https://kubernetes.io/api/_definitions.json"
_CORE, _NETWORK = "io.k8s.api.core.v1", "io.k8s.api.networking.v1"
_SAME = {
    "template.spec": f"{_CORE}.PodSpec",
    "submitterPodTemplate.spec": f"{_CORE}.PodSpec",
    "headService": f"{_CORE}.Service",
    "serveService": f"{_CORE}.Service",
    "autoscalerOptions.env[]": f"{_CORE}.EnvVar",
    "autoscalerOptions.envFrom[]": f"{_CORE}.EnvFromSource",
    "autoscalerOptions.resources": f"{_CORE}.ResourceRequirements",
    "autoscalerOptions.securityContext": f"{_CORE}.SecurityContext",
    "autoscalerOptions.volumeMounts[]": f"{_CORE}.VolumeMount",
    "collectorOptions.env[]": f"{_CORE}.EnvVar",
    "collectorOptions.resources": f"{_CORE}.ResourceRequirements",
    "valueFrom": f"{_CORE}.EnvVarSource",
    "egressRules[]": f"{_NETWORK}.NetworkPolicyEgressRule",
    "ingressRules[]": f"{_NETWORK}.NetworkPolicyIngressRule",
    "ingressOptions.tls[]": f"{_NETWORK}.IngressTLS",
}
"""Ends of paths in the CRDs, and the type of Kubernetes that stands there."""


def facts(folder: Path) -> dict[str, Any]:
    """The schema of each kind, by its name."""
    specs = {kind: _spec(folder / f"ray.io_{plural}.yaml") for kind, plural in KINDS.items()}
    for kind, name in _CLUSTER_IN.items():
        if specs[kind]["properties"][name] != specs["RayCluster"]:
            raise SystemExit(f"{name} of a {kind} isn't the `spec` of a RayCluster any more, as it was until KubeRay 1.7")
        specs[kind]["properties"][name] = {"$ref": "#/RayCluster/properties/spec"}
    return {
        kind: {
            "type": "object",
            "required": ["apiVersion", "kind", "metadata", "spec"],
            "additionalProperties": False,
            "properties": {
                "apiVersion": {"const": "ray.io/v1"},
                "kind": {"const": kind},
                "metadata": {"$ref": f"{KUBERNETES}#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
                "spec": spec,
            },
        }
        for kind, spec in specs.items()
    }


def _spec(crd: Path) -> dict[str, Any]:
    versions = {version["name"]: version for version in yaml.safe_load(crd.read_text())["spec"]["versions"]}
    return _keep(versions["v1"]["schema"]["openAPIV3Schema"]["properties"]["spec"], "spec")


def _keep(schema: dict[str, Any], path: str) -> dict[str, Any]:
    for end, name in _SAME.items():
        if path == end or path.endswith(f".{end}"):
            return {"$ref": f"{KUBERNETES}#/$defs/{name}"}
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"], "pattern": schema["pattern"]}
    kept: dict[str, Any] = {key: schema[key] for key in ("type", "enum", "minimum", "minItems", "required") if key in schema}
    if "properties" in schema:
        kept["additionalProperties"] = False
        kept["properties"] = {name: _keep(item, f"{path}.{name}") for name, item in schema["properties"].items()}
    elif "additionalProperties" in schema:
        kept["additionalProperties"] = _keep(schema["additionalProperties"], path)
    if "items" in schema:
        kept["items"] = _keep(schema["items"], f"{path}[]")
    return kept


class _Plain(yaml.SafeDumper):
    """Writes equal values out, and never as anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


if __name__ == "__main__":
    print(f"# Facts from the CRDs of KubeRay {sys.argv[2]}, which is Apache-2.0, written by kuberay_facts.py.")
    print(yaml.dump(facts(Path(sys.argv[1])), Dumper=_Plain, sort_keys=True, width=125), end="")
