import { createHash } from "node:crypto";
import { readdirSync } from "node:fs";
import type { IContainer, IPodSpec } from "kubernetes-models/v1";
import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import { root, rowsUnder, textOf } from "../docs/document.ts";
import { checkSchema, unknownFields } from "./cluster-schema.ts";
import { operator, only, renderCluster, type Manifest } from "./cluster.ts";
import { reaches, type Party } from "./network-reach.ts";

const small = await renderCluster("small");
const full = await renderCluster("full", "rediss://redis.example.com:6380");
const both = [
  ["small", small],
  ["full", full],
] as const;

/** The one container of each workload, with its pod. */
interface Workload {
  name: string;
  labels: Record<string, string>;
  pod: IPodSpec;
  container: IContainer;
}

function workloadsIn(manifests: readonly Manifest[]): Workload[] {
  return [...only(manifests, "Deployment"), ...only(manifests, "StatefulSet")].map(
    ({ metadata, spec }) => {
      const { template } = spec ?? {};
      const [container, ...others] = template?.spec?.containers ?? [];
      if (template?.spec === undefined || container === undefined) {
        throw new Error("it has no container");
      }
      expect(others).toEqual([]);
      return {
        name: metadata?.name ?? "",
        labels: template.metadata?.labels ?? {},
        pod: template.spec,
        container,
      };
    },
  );
}

function portsOf({ container }: Workload): Record<string, number> {
  return Object.fromEntries(
    (container.ports ?? []).map((port) => [port.name ?? "", port.containerPort]),
  );
}

function appOf({ container }: Workload): string {
  const [, image = ""] =
    /^registry\.example\.com\/larkline\/([a-z-]+):1\.2\.3$/.exec(container.image ?? "") ?? [];
  return image === "feishu-runner" ? "tool-runner" : image;
}

/** Where the deadline of its end is said. */
function mainOf(app: string): string {
  return `apps/${app}/src/main.ts`;
}

/** What a Secret holds. Kustomize gives it a name that ends in a hash of that. */
function secretIn(manifests: readonly Manifest[], name: string): Record<string, string> {
  const found = only(manifests, "Secret").find(
    ({ metadata }) => metadata?.name?.replace(/-[a-z0-9]{10}$/, "") === name,
  );
  if (found === undefined) throw new Error(`there is no Secret ${name}`);
  return Object.fromEntries(
    Object.entries(found.data ?? {}).map(([key, value]) => [
      key,
      Buffer.from(value, "base64").toString(),
    ]),
  );
}

/** The environment that a container gets. */
function environmentOf(
  { container }: Workload,
  manifests: readonly Manifest[],
): Record<string, string> {
  const secretBy = (name = ""): Record<string, string> =>
    secretIn(manifests, name.replace(/-[a-z0-9]{10}$/, ""));
  const own = (container.env ?? []).map(({ name, value, valueFrom }) => {
    const reference = valueFrom?.secretKeyRef;
    return [name, value ?? secretBy(reference?.name)[reference?.key ?? ""] ?? ""];
  });
  const taken = (container.envFrom ?? []).map(({ secretRef }) => secretBy(secretRef?.name));
  return Object.assign({}, ...taken, Object.fromEntries(own)) as Record<string, string>; // made of such alone
}

const variables = rowsUnder(textOf("docs/configuration.md"), "variable").map(
  ([name = "", readBy = "", standard = ""]) => ({
    name: name.replaceAll("`", ""),
    readBy: readBy.split(",").map((app) => app.trim()),
    isRequired: standard.includes("required"),
  }),
);

describe.each(both)("infra/k8s/overlays/%s", (_name, manifests) => {
  const workloads = workloadsIn(manifests);
  const ours = workloads.filter(({ name }) => name !== "redis");

  it("is what the schemas of Kubernetes, KEDA and the Prometheus operator allow", () => {
    expect(manifests.length).toBeGreaterThan(15);
    for (const manifest of manifests) checkSchema(manifest);
    const [workload] = only(manifests, "Deployment");
    const wrong = {
      ...workload,
      spec: { ...workload?.spec, replicas: "two" },
    } as unknown as Manifest; // it is no such
    expect(() => checkSchema(wrong)).toThrow("replicas");
  });

  it("has no unknown field", async () => {
    expect(await unknownFields(manifests)).toBe("");
  });

  it("runs images of apps that exist, with the settings and secrets that each reads", () => {
    const apps = readdirSync(`${root}/apps`);
    for (const workload of ours) {
      const app = appOf(workload);
      expect(apps).toContain(app);
      const environment = environmentOf(workload, manifests);
      const read = variables.filter(({ readBy }) => readBy.includes(app));
      expect(read.map(({ name }) => name)).toEqual(
        expect.arrayContaining(Object.keys(environment)),
      );
      for (const { name, isRequired } of read) {
        if (isRequired) expect(environment[name], `${name} of ${workload.name}`).toBeTruthy();
      }
    }
  });

  it("names configurations that are there, with a file of the name that processes get", () => {
    const configs = only(manifests, "ConfigMap");
    for (const { pod, container } of ours) {
      const path = container.env?.find(({ name }) => name === "LARKLINE_CONFIG")?.value;
      const named =
        pod.volumes?.flatMap(({ configMap }) =>
          configMap === undefined ? [] : [configMap.name],
        ) ?? [];
      expect(named.length === 1).toBe(path !== undefined);
      for (const name of named) {
        const found = configs.find(({ metadata }) => metadata?.name === name);
        expect(Object.keys(found?.data ?? {}).map((file) => `/etc/larkline/${file}`)).toEqual([
          path,
        ]);
      }
    }
  });

  it("mounts secrets that are there", () => {
    const secrets = only(manifests, "Secret").map(({ metadata }) => metadata?.name);
    const mounted = workloads
      .flatMap(({ pod }) => pod.volumes ?? [])
      .flatMap(({ secret }) => secret?.secretName ?? []);
    for (const name of mounted) expect(secrets).toContain(name);
  });

  it("holds every pod to the strictest standard of Kubernetes, with a file system that is only read", () => {
    expect(only(manifests, "Namespace")[0]?.metadata?.labels).toMatchObject({
      "pod-security.kubernetes.io/enforce": "restricted",
    });
    for (const { name, pod, container } of workloads) {
      expect(pod, name).toMatchObject({
        automountServiceAccountToken: false,
        securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
      });
      // A number: of a user's name a kubelet cannot tell whether it is root.
      expect(pod.securityContext?.runAsUser, name).toBeGreaterThan(0);
      expect(container.securityContext, name).toEqual({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ["ALL"] },
      });
      expect(container.resources?.limits?.["memory"], name).toBeTruthy();
      expect(container.resources?.requests, name).toMatchObject({
        cpu: expect.anything(),
        memory: expect.anything(),
      });
      for (const { hostPath } of pod.volumes ?? []) expect(hostPath).toBeUndefined();
    }
  });

  it("asks each process for its health and readiness at a port that it has, and a liveness that knows no Redis", () => {
    for (const workload of ours) {
      const { name, container } = workload;
      for (const probe of [
        container.startupProbe,
        container.livenessProbe,
        container.readinessProbe,
      ]) {
        expect(Object.keys(portsOf(workload)), name).toContain(probe?.httpGet?.port);
      }
      expect(container.livenessProbe?.httpGet?.path).toBe("/health");
      // /ready has two seconds to answer.
      expect(container.readinessProbe?.timeoutSeconds).toBeGreaterThan(2);
      expect(container.readinessProbe?.httpGet?.path).toBe(
        name === "console" ? "/health" : "/ready",
      );
    }
  });

  it("gives each process the time that it takes to stop", () => {
    for (const workload of ours) {
      const { name, pod, container } = workload;
      const [, deadline = "8_000"] =
        /deadlineMs: ([\d_]+)/.exec(textOf(mainOf(appOf(workload)))) ?? [];
      const drain = container.env?.find((variable) => variable.name === "RUNNER_DRAIN_MS")?.value;
      const stopMs =
        drain === undefined ? Number(deadline.replaceAll("_", "")) : Number(drain) + 1_800;
      const [, asleep = "0"] = container.lifecycle?.preStop?.exec?.command ?? [];
      expect(
        (pod.terminationGracePeriodSeconds ?? 30) * 1_000 - Number(asleep) * 1_000 - stopMs,
        name,
      ).toBeGreaterThan(2_000);
    }
  });

  const selected = (labels: Record<string, string> = {}): Workload[] =>
    workloads.filter((workload) =>
      Object.entries(labels).every(([key, value]) => workload.labels[key] === value),
    );

  it("has services for one kind of pod each, with ports that it has", () => {
    for (const { metadata, spec } of only(manifests, "Service")) {
      const [workload, ...others] = selected(spec?.selector);
      expect([workload?.name, others]).toEqual([metadata?.name, []]);
      const has = workload === undefined ? [] : Object.keys(portsOf(workload));
      for (const { targetPort } of spec?.ports ?? []) expect(has).toContain(targetPort);
    }
  });

  it("selects the pods of each deployment by their own labels, for it and for its disruption budget", () => {
    for (const { spec } of only(manifests, "Deployment")) {
      expect(spec?.template?.metadata?.labels).toMatchObject(
        spec?.selector.matchLabels ?? { none: "" },
      );
    }
    for (const { metadata, spec } of only(manifests, "PodDisruptionBudget")) {
      expect(selected(spec?.selector?.matchLabels).map(({ name }) => name)).toEqual([
        metadata?.name,
      ]);
    }
  });

  it("lets Prometheus ask every pod of ours, at a port that it has", () => {
    for (const { spec } of only(manifests, "PodMonitor")) {
      expect(selected(spec.selector.matchLabels)).toEqual(ours);
      const ports = (spec.podMetricsEndpoints ?? []).map(({ port }) => port);
      for (const workload of ours) {
        expect(Object.keys(portsOf(workload))).toEqual(expect.arrayContaining(ports));
      }
    }
  });

  it("lets each process be a user of Redis that the file of users knows", () => {
    const users = secretIn(manifests, "larkline-redis-users")["users.acl"] ?? "";
    const expected: Record<string, string> = {
      "tool-runner": "runner-default",
      "code-runner": "runner-code",
      "feishu-runner": "runner-feishu",
    };
    for (const workload of ours) {
      const { REDIS_URL: url } = environmentOf(workload, manifests);
      const { username, password } = new URL(url ?? "");
      expect(username).toBe(expected[workload.name] ?? workload.name);
      const hash = createHash("sha256").update(password).digest("hex");
      expect(users).toContain(`user ${username} on #${hash} `);
    }
  });
});

describe("the way in", () => {
  it("leads webhooks and the HTTP API to ingress, and nothing that is for monitoring", () => {
    const [entry] = only(full, "Ingress");
    const paths = entry?.spec?.rules?.flatMap(({ http }) => http?.paths ?? []) ?? [];
    expect(paths.map(({ path }) => path)).toEqual([
      "/feishu/events",
      "/feishu/cards",
      "/feishu/consent",
      "/chat",
      "/v1",
    ]);
    const service = only(full, "Service").find(({ metadata }) => metadata?.name === "ingress");
    const ports = service?.spec?.ports?.map(({ name }) => name);
    for (const { backend } of paths) {
      expect(backend.service?.name).toBe("ingress");
      expect(ports).toContain(backend.service?.port?.name);
    }
    const routes = ["webhook", "consent-callback", "api", "approvals"].map((name) =>
      textOf(`apps/ingress/src/${name}.ts`),
    );
    const served = [...routes.join("").matchAll(/"(\/[a-z][^"\s]*)"/g)].map(
      ([, path = ""]) => path,
    );
    expect(served.length).toBeGreaterThan(4);
    for (const path of served) {
      expect(path).toMatch(/^\/(?:feishu\/(?:events|cards|consent)|chat|v1)(?:\/|$)/);
    }
  });
});

describe("the networks of infra/k8s", () => {
  const policies = only(full, "NetworkPolicy").concat(only(small, "NetworkPolicy"));
  const pods = new Map<string, Party>(
    [...workloadsIn(full), ...workloadsIn(small)].map((workload) => [
      workload.name,
      {
        name: workload.name,
        namespace: "larkline",
        labels: workload.labels,
        ports: portsOf(workload),
      },
    ]),
  );
  const outside: Party[] = [
    {
      name: "prometheus",
      namespace: "monitoring",
      labels: { "app.kubernetes.io/name": "prometheus" },
    },
    { name: "grafana", namespace: "monitoring", labels: { "app.kubernetes.io/name": "grafana" } },
    { name: "controller", namespace: "ingress-system", labels: {} },
    { name: "stranger", namespace: "default", labels: { "app.kubernetes.io/name": "redis" } },
  ];
  const everybody = [...pods.values(), ...outside];

  function whoReaches(name: string, port: number): string[] {
    const to = pods.get(name) ?? { name, address: name };
    return everybody
      .filter((from) => from !== to && reaches(policies, { from, to, port }))
      .map((from) => from.name);
  }
  const usersOfRedis = [
    "agent-worker",
    "code-runner",
    "console",
    "feishu-runner",
    "ingress",
    "tool-runner",
  ];

  it("let apps reach Redis, and no other pods", () => {
    expect(whoReaches("redis", 6379).toSorted()).toEqual(usersOfRedis);
  });

  it("let only Prometheus reach a worker, a runner or the console; its controller reaches ingress, too", () => {
    for (const name of usersOfRedis.filter((each) => each !== "ingress")) {
      expect(whoReaches(name, 8000), name).toEqual(["prometheus"]);
    }
    expect(whoReaches("ingress", 8000).toSorted()).toEqual(["controller", "prometheus"]);
  });

  it("let those out that speak to Feishu, to models or for trusted tools, and none to its neighbours", () => {
    const free = outside.map(({ name }) => name); // who are not ours to hold
    const reach = (address: string, port: number): string[] =>
      whoReaches(address, port).filter((name) => !free.includes(name));
    expect(reach("203.0.113.7", 443).toSorted()).toEqual([
      "agent-worker",
      "feishu-runner",
      "ingress",
      "tool-runner",
    ]);
    expect(reach("2001:db8::7", 443).toSorted()).toEqual([
      "agent-worker",
      "feishu-runner",
      "ingress",
      "tool-runner",
    ]);
    for (const address of ["169.254.169.254", "10.1.2.3", "192.168.1.1", "fd00::1"]) {
      for (const port of [80, 443, 10250]) {
        expect(reach(address, port), `${address}:${port}`).toEqual([]);
      }
    }
  });
});

describe("the Redis of infra/k8s", () => {
  it("is started as that of the composition", () => {
    const { services } = parse(textOf("infra/compose/compose.yaml"), { merge: true }) as {
      services: { redis: { image: string; command: string[] } };
    };
    const redis = workloadsIn(small).find(({ name }) => name === "redis")?.container;
    const settings = (words: readonly string[] = []): string[] =>
      words
        .join(" ")
        .replaceAll(/ --(?:maxmemory|dir) \S+/g, "")
        .split(" --")
        .toSorted();
    expect(redis?.image).toBe(services.redis.image);
    expect(settings(redis?.args)).toEqual(settings(services.redis.command));
  });
});

describe("autoscaling", () => {
  it("scales every kind of worker and runner, whose number no file says then", () => {
    const deployments = only(full, "Deployment");
    const scaled = only(full, "ScaledObject").map(({ spec }) => spec.scaleTargetRef.name);
    expect(scaled.toSorted()).toEqual([
      "agent-worker",
      "code-runner",
      "feishu-runner",
      "tool-runner",
    ]);
    for (const { metadata, spec } of deployments) {
      expect(spec?.replicas === undefined).toBe(scaled.includes(metadata?.name ?? ""));
    }
  });

  it("takes one away at a time, with more time between than its calls may take to end", () => {
    for (const { metadata, spec } of only(full, "ScaledObject")) {
      const down = spec.advanced?.horizontalPodAutoscalerConfig?.behavior?.scaleDown;
      const pod = workloadsIn(full).find(({ name }) => name === metadata?.name)?.pod;
      expect(down?.policies).toMatchObject([{ type: "Pods", value: 1 }]);
      expect(down?.policies?.[0]?.periodSeconds).toBeGreaterThan(
        pod?.terminationGracePeriodSeconds ?? 0,
      );
      // KEDA takes no other kind of number while Prometheus is away.
      for (const { metricType } of spec.triggers) expect(metricType).toBe("AverageValue");
    }
  });

  it("asks for more processes before those that are there are full", () => {
    const concurrency: Record<string, number> = {
      "agent-worker": 50,
      "tool-runner": 32,
      "feishu-runner": 32,
      "code-runner": 8,
    };
    for (const { metadata, spec } of only(full, "ScaledObject")) {
      const [jobs] = spec.triggers;
      expect(Number(jobs?.metadata["threshold"])).toBeLessThan(
        concurrency[metadata?.name ?? ""] ?? 0,
      );
    }
    for (const [name, standard] of [
      ["WORKER_CONCURRENCY", 50],
      ["RUNNER_CONCURRENCY", 32],
    ] as const) {
      expect(textOf("docs/configuration.md")).toMatch(
        new RegExp(`\`${name}\` +\\|[^|]+\\| \`${standard}\``),
      );
    }
  });
});

describe("npm run k8s-files", () => {
  it("tells each app its own secrets and those of no other one, as they are", () => {
    expect(secretIn(small, "larkline-ingress")).toMatchObject({
      FEISHU_APP_SECRET: operator.FEISHU_APP_SECRET,
    });
    const holders = only(small, "Secret")
      .filter(({ data }) => data !== undefined && "FEISHU_APP_SECRET" in data)
      .map(({ metadata }) => metadata?.name?.replace(/-[a-z0-9]{10}$/, ""));
    expect(holders).toEqual(["larkline-agent-worker", "larkline-ingress"]);
  });

  it("gives programs of models the cluster's runtime class, and nothing else", () => {
    const classes = [...only(full, "Deployment"), ...only(small, "Deployment")].flatMap(
      ({ metadata, spec }) => {
        const name = spec?.template.spec?.runtimeClassName;
        return name === undefined ? [] : [[metadata?.name, name]];
      },
    );
    expect(classes).toEqual([["code-runner", "kata"]]);
    const runner = only(full, "Deployment").find(
      ({ metadata }) => metadata?.name === "code-runner",
    );
    const env = runner?.spec?.template.spec?.containers[0]?.env;
    expect(env).toContainEqual({ name: "RUNTIME_CLASS", value: "kata" });
  });

  it("takes the address of another Redis, and makes a user for each further runner", () => {
    const { REDIS_URL: url = "" } = secretIn(full, "larkline-runner-weather");
    expect(url).toMatch(/^rediss:\/\/runner-weather:[0-9a-f]{64}@redis\.example\.com:6380$/);
    expect(secretIn(full, "larkline-redis-users")["users.acl"]).toContain(
      "~{larkline}:tools-weather:*",
    );
  });
});
