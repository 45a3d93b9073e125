import {
  adminValues,
  keptSecretsFile,
  runnerValues,
  secretsFrom,
  serviceValues,
  standardConfig,
  type DeploymentFile,
  type Known,
} from "@larkline/compose";
import { aclFileOf, appUsers } from "@larkline/redis-users";

type Values = Readonly<Record<string, string | undefined>>;

/** A deployment on Kubernetes as its operator wants it. */
export interface Cluster {
  /** The variables of `.env`. */
  env: Values;
  /** The text of `larkline.config.ts`, if there is one. */
  config?: string;
  /** Runners besides those of infra/k8s. */
  runners?: readonly string[];
  /** What it is made of, as seen from the folder of these files. */
  overlay: string;
  /** Where Redis is: an address without a user. */
  redisUrl: string;
  /** Before the names of images, `registry.example.com/larkline`; and their tag. */
  images: { prefix: string; tag: string };
  /** Of the cluster, for the runner of programs that models write. */
  runtimeClass?: string | undefined;
}

/** Runners of infra/k8s. */
const ownRunners = ["default", "code", "feishu"] as const;
const images = ["ingress", "agent-worker", "tool-runner", "feishu-runner", "console"];

/** As Kustomize reads it: all behind the sign, up to the end of the line. */
function line([name, value]: readonly [string, string]): string {
  if (/[\r\n]/.test(value)) throw new RangeError(`${name} must not have line breaks in it.`);
  return `${name}=${value}\n`;
}

function file(name: string, text: string): DeploymentFile {
  return { name, text, isPublic: false };
}

function envText(values: Readonly<Record<string, string>>): string {
  return Object.entries(values).map(line).join("");
}

/** The same address with a user: `redis+sentinel://a:1,b:2/name` is none that a URL parser knows. */
function as(user: string, password: string, address: string): string {
  const [, scheme = "", rest = ""] = /^([a-z+]+:\/\/)(?:[^@/]*@)?(.+)$/.exec(address) ?? [];
  if (rest === "") throw new RangeError(`'${address}' is no address of Redis.`);
  return `${scheme}${user}:${password}@${rest}`;
}

/** Secrets with variables, by name: the environment of the pods of each kind. */
function envSecrets(known: Known, others: readonly string[]): Map<string, Record<string, string>> {
  const runners = others.map(
    (runner) => [`larkline-runner-${runner}`, runnerValues(runner, known)] as const,
  );
  return new Map([
    ["larkline-ingress", serviceValues("ingress", known)],
    ["larkline-agent-worker", serviceValues("agent-worker", known)],
    ["larkline-runner-default", serviceValues("tool-runner", known)],
    ["larkline-runner-code", runnerValues("code", known)],
    ["larkline-runner-feishu", serviceValues("feishu-runner", known)],
    ["larkline-console", serviceValues("console", known)],
    ...runners,
  ]);
}

function kustomization(
  { overlay, images: { prefix, tag }, runtimeClass }: Cluster,
  envNames: readonly string[],
): string {
  return `# Written by \`npm run k8s-files\`, which overwrites it: change what it is made of. The files beside it hold secrets.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: larkline
resources: [${overlay}]
images:
${images.map((name) => `  - { name: larkline/${name}, newName: ${prefix}/${name}, newTag: "${tag}" }`).join("\n")}
configMapGenerator:
  - { name: larkline-config, behavior: replace, files: [larkline.config.ts] }
secretGenerator:
${envNames.map((name) => `  - { name: ${name}, envs: [${name}.env] }`).join("\n")}
  - { name: larkline-redis-users, files: [users.acl] }
${runtimeClass === undefined ? "" : runtimeClassPatch(runtimeClass)}`;
}

/** Changes nothing where the overlay has no such runner. */
function runtimeClassPatch(name: string): string {
  return `patches:
  - target: { kind: Deployment, name: code-runner }
    patch: |-
      apiVersion: apps/v1
      kind: Deployment
      metadata: { name: code-runner }
      spec:
        template:
          spec:
            runtimeClassName: "${name}"
            containers:
              - { name: tool-runner, env: [{ name: RUNTIME_CLASS, value: "${name}" }] }
`;
}

/**
 * An overlay of infra/k8s with the secrets and the configuration of one deployment, for `kubectl apply -k`. Throws a
 * RangeError that names each value that has no place in the file.
 */
export function clusterFiles(cluster: Cluster, kept: Values): DeploymentFile[] {
  const { env, config = standardConfig, runners = [] } = cluster;
  const secrets = secretsFrom(env, kept);
  const others = [...new Set(runners)].filter(
    (runner) => !ownRunners.some((own) => own === runner),
  );
  const users = appUsers(env["REDIS_NAMESPACE"] || "larkline", [...ownRunners, ...others]);
  const redisUrlOf = (user: string): string => as(user, secrets.passwordOf(user), cluster.redisUrl);
  const known: Known = { env, secrets, redisUrlOf };
  const envs = envSecrets(known, others);
  return [
    // First: a file that was written with a secret that is lost would be good for nothing.
    file(keptSecretsFile, envText(secrets.values)),
    file(
      "users.acl",
      aclFileOf(users, (user) => [secrets.passwordOf(user)]),
    ),
    file("larkline.config.ts", config),
    file("admin.env", envText(adminValues(known))),
    ...[...envs].map(([name, values]) => file(`${name}.env`, envText(values))),
    file("kustomization.yaml", kustomization(cluster, [...envs.keys()])),
  ];
}
