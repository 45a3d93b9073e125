import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { ScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject";
import { PodMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor";
import { PrometheusRule } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule";
import { Deployment } from "kubernetes-models/apps/v1/Deployment";
import { StatefulSet } from "kubernetes-models/apps/v1/StatefulSet";
import { Ingress } from "kubernetes-models/networking.k8s.io/v1/Ingress";
import { NetworkPolicy } from "kubernetes-models/networking.k8s.io/v1/NetworkPolicy";
import { PodDisruptionBudget } from "kubernetes-models/policy/v1/PodDisruptionBudget";
import { ConfigMap } from "kubernetes-models/v1/ConfigMap";
import { Namespace } from "kubernetes-models/v1/Namespace";
import { Secret } from "kubernetes-models/v1/Secret";
import { Service } from "kubernetes-models/v1/Service";
import { root } from "../docs/document.ts";
import type { Manifest } from "./cluster.ts";

const run = promisify(execFile);

/** Kustomize breaks long values into lines; Kubernetes reads over that, the schema does not. */
function unwrapped(data: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(data).map(([name, value]) => [name, value.replaceAll("\n", "")]),
  );
}

/** Throws what the schema of its kind finds wrong: what is missing, what has another type or another value. */
export function checkSchema(manifest: Manifest): void {
  switch (manifest.kind) {
    case "Deployment":
      return new Deployment(manifest).validate();
    case "StatefulSet":
      return new StatefulSet(manifest).validate();
    case "Service":
      return new Service(manifest).validate();
    case "ConfigMap":
      return new ConfigMap(manifest).validate();
    case "Secret":
      return new Secret({ ...manifest, data: unwrapped(manifest.data ?? {}) }).validate();
    case "Namespace":
      return new Namespace(manifest).validate();
    case "NetworkPolicy":
      return new NetworkPolicy(manifest).validate();
    case "Ingress":
      return new Ingress(manifest).validate();
    case "PodDisruptionBudget":
      return new PodDisruptionBudget(manifest).validate();
    case "ScaledObject":
      return new ScaledObject(manifest).validate();
    case "PodMonitor":
      return new PodMonitor(manifest).validate();
    case "PrometheusRule":
      return new PrometheusRule(manifest).validate();
    default:
      throw new Error(`nobody knows a kind ${JSON.stringify(manifest)}`);
  }
}

/** Where the types of each kind are. */
function moduleOf({ apiVersion, kind }: Manifest): string {
  if (apiVersion.startsWith("keda.sh/")) return `@kubernetes-models/keda/${apiVersion}/${kind}`;
  if (apiVersion.startsWith("monitoring.")) {
    return `@kubernetes-models/prometheus-operator/${apiVersion}/${kind}`;
  }
  return `kubernetes-models/${apiVersion}/${kind}`;
}

/**
 * What the compiler finds in manifests that are written down as values of their types: fields that the types lack, such
 * as misspelled ones, which the schemas let pass and the API server drops.
 */
export async function unknownFields(manifests: readonly Manifest[]): Promise<string> {
  // From here the compiler finds the packages of the types.
  const folder = await mkdtemp(join(root, "test/node_modules/.manifests-"));
  const file = join(folder, "manifests.ts");
  const kinds = new Map(manifests.map((one) => [one.kind, moduleOf(one)]));
  const imports = [...kinds].map(([kind, from]) => `import type { I${kind} } from "${from}";\n`);
  const values = manifests.map(
    (one, index) => `export const m${index}: I${one.kind} = ${JSON.stringify(one)};\n`,
  );
  try {
    await writeFile(file, [...imports, ...values].join(""));
    const options = [
      "--ignoreConfig",
      "--noEmit",
      "--strict",
      "--skipLibCheck",
      "--module",
      "nodenext",
      "--target",
      "es2024",
    ];
    await run(join(root, "node_modules/.bin/tsc"), [...options, file], { cwd: folder });
    return "";
  } catch (error) {
    if (error instanceof Error && "stdout" in error) return String(error.stdout);
    throw error;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
