import { compileJsonSchema } from "@larkline/protocol/json-schema";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createTestServices, startTestIngress, type TestIngress } from "./ingress.fixture.ts";
import { testMemory } from "./redis.fixture.ts";
import { createServer } from "./server.ts";

interface Described {
  openapi: string;
  paths: Record<
    string,
    Record<string, { responses: Record<string, { content?: Record<string, { schema: object }> }> }>
  >;
  components: { schemas: Record<string, object> };
}

const agent = { instructions: "test", schedules: true };

let ingress: TestIngress;
beforeAll(async () => {
  const script: Parameters<typeof startTestIngress>[0] = {
    settings: { agents: { default: agent } },
    script: async (text, { emit }) => await emit({ type: "text_delta", text: `[${text}]` }),
  };
  ingress = await startTestIngress(script);
});
afterAll(async () => await ingress.close());

async function served(): Promise<Described> {
  const response = await fetch(`${ingress.url}/openapi.json`);
  expect(response.headers.get("content-type")).toContain("application/json");
  return (await response.json()) as Described; // the test looks at it
}

/** Routes that are no part of the API: those of operators, and the description itself. */
const others = ["GET /health", "GET /ready", "GET /metrics", "GET /openapi.json", "GET /docs"];

async function routesOfServer(): Promise<string[]> {
  // Its end is that of the streams of its services.
  const server = await createServer(createTestServices(testMemory()), [], async () => ({}));
  try {
    // One line for each method of a path.
    const lines = server.printRoutes({ commonPrefix: false }).split("\n");
    const found: string[] = [];
    const parts: string[] = [];
    for (const line of lines) {
      const match = /^((?:│ {3}| {4})*)[├└]── (\S+?)(?: \(([A-Z, ]+)\))?$/.exec(line);
      if (match === null) continue;
      const [, indent = "", part = "", methods = ""] = match;
      parts.length = indent.length / 4;
      parts.push(part);
      const path = parts.join("").replaceAll(/:(\w+)/g, "{$1}");
      const own = methods.split(", ").filter((method) => method !== "" && method !== "OPTIONS");
      found.push(...own.map((method) => `${method} ${path}`));
    }
    return found;
  } finally {
    await server.close();
  }
}

describe("the description of the API", () => {
  it("has every route of the server, and no other", async () => {
    const routes = (await routesOfServer()).filter((route) => !route.startsWith("HEAD "));
    const { paths } = await served();
    const described = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    expect(routes.toSorted()).toEqual([...described, ...others].toSorted());
  });

  it("is OpenAPI 3.1 whose references all lead somewhere", async () => {
    const document = await served();
    expect(document.openapi).toBe("3.1.0");
    const { components, paths } = document;
    const targets = [
      ...JSON.stringify(document).matchAll(/"\$ref":"#\/components\/schemas\/(\w+)"/g),
    ].map(([, name = ""]) => name);
    expect(targets.length).toBeGreaterThan(20);
    expect(targets.filter((name) => !(name in components.schemas))).toEqual([]);
    expect(Object.keys(components.schemas).filter((name) => !targets.includes(name))).toEqual([]);
    const ids = Object.values(paths).flatMap((methods) => Object.values(methods)) as unknown as {
      operationId: string;
    }[];
    expect(new Set(ids.map(({ operationId }) => operationId)).size).toBe(ids.length);
    for (const schema of Object.values(components.schemas)) {
      compileJsonSchema(standing(schema, components.schemas));
    }
  });

  it("says what real calls are answered", async () => {
    const { components, paths } = await served();
    const unlike: string[] = [];
    const call = async (route: string, path: string, init: RequestInit = {}) => {
      const [method = "", template = ""] = route.split(" ");
      const response = await fetch(`${ingress.url}${path}`, { ...init, method });
      const described = paths[template]?.[method.toLowerCase()]?.responses[response.status];
      const schema = described?.content?.["application/json"]?.schema;
      const text = await response.text();
      if (described === undefined) unlike.push(`${route}: no status ${response.status}`);
      else if (schema === undefined && text !== "" && described.content === undefined) {
        unlike.push(`${route}: a body`);
      } else if (schema !== undefined) {
        const checked = compileJsonSchema(standing(schema, components.schemas))(JSON.parse(text));
        if (!checked.ok) unlike.push(`${route} ${response.status}: ${checked.error}`);
      }
      return { status: response.status, text };
    };
    const body = (value: unknown) => ({ body: JSON.stringify(value) });
    const schedule = { title: "a", task: "b", every: "PT1H" };
    const wait = { headers: { prefer: "wait=30" } };
    const statuses = [
      await call("POST /v1/runs", "/v1/runs", {
        ...body({ input: "a", session_id: "o1", message_id: "m" }),
        ...wait,
      }),
      await call("POST /v1/runs", "/v1/runs", body({ input: "b", session_id: "o2" })),
      await call("POST /v1/runs", "/v1/runs", body({ input: [] })),
      await call("POST /v1/runs", "/v1/runs", body({ input: "a".repeat(1_100_000) })),
      await call("GET /v1/runs/{id}", "/v1/runs/api.o1-1"),
      await call("GET /v1/runs/{id}", "/v1/runs/nothing"),
      await call("GET /v1/runs/{id}/events", "/v1/runs/api.o1-1/events"),
      await call("GET /v1/runs/{id}/events", "/v1/runs/api.o1-1/events?view=films"),
      await call("GET /v1/runs/{id}/events", "/v1/runs/api.o1-1/events?after=99"),
      await call("POST /v1/runs/{id}/cancel", "/v1/runs/api.o1-1/cancel"),
      await call("POST /v1/runs/{id}/cancel", "/v1/runs/api.o9-1/cancel"),
      await call("GET /v1/sessions/{id}", "/v1/sessions/o1"),
      await call("GET /v1/sessions/{id}", "/v1/sessions/o9"),
      await call("GET /v1/sessions/{id}/items", "/v1/sessions/o1/items"),
      await call("GET /v1/sessions/{id}/items", "/v1/sessions/o1/items?limit=0"),
      await call(
        "POST /v1/sessions/{id}/commands",
        "/v1/sessions/o1/commands",
        body({ command: "/status" }),
      ),
      await call(
        "POST /v1/sessions/{id}/commands",
        "/v1/sessions/o1/commands",
        body({ command: "/new" }),
      ),
      await call(
        "POST /v1/sessions/{id}/commands",
        "/v1/sessions/o1/commands",
        body({ command: "hello" }),
      ),
      await call(
        "POST /v1/sessions/{id}/commands",
        "/v1/sessions/o.1/commands",
        body({ command: "/new" }),
      ),
      await call("GET /v1/approvals", "/v1/approvals?session_id=o1"),
      await call("GET /v1/approvals", "/v1/approvals"),
      await call("POST /v1/approvals/{id}", "/v1/approvals/none", body({ decision: "approve" })),
      await call("POST /v1/approvals/{id}", "/v1/approvals/none", body({ decision: "maybe" })),
      await call("GET /v1/permissions", "/v1/permissions?session_id=o1"),
      await call("DELETE /v1/permissions/{id}", "/v1/permissions/none?session_id=o1"),
      await call("GET /v1/memories", "/v1/memories?session_id=o1"),
      await call("GET /v1/memories", "/v1/memories"),
      await call("DELETE /v1/memories/{id}", "/v1/memories/none?session_id=o1"),
      await call("GET /v1/schedules", "/v1/schedules"),
      await call("POST /v1/schedules", "/v1/schedules", body(schedule)),
      await call("POST /v1/schedules", "/v1/schedules", body(schedule)),
      await call("POST /v1/schedules", "/v1/schedules", body({ title: "a" })),
      await call("GET /v1/schedules/{id}", "/v1/schedules/none"),
      await call("PATCH /v1/schedules/{id}", "/v1/schedules/none", body({ state: "paused" })),
      await call("DELETE /v1/schedules/{id}", "/v1/schedules/none"),
      await call("POST /v1/schedules/{id}/run", "/v1/schedules/none/run"),
      await call("POST /chat", "/chat", body({ message: "a", session_id: "o3" })),
      await call("POST /chat", "/chat", body({ message: 5 })),
      await call("GET /chat/{sessionId}/events", "/chat/o3/events"),
      await call("GET /chat/{sessionId}/events", "/chat/o9/events"),
    ].map(({ status }) => status);
    expect(unlike).toEqual([]);
    const expected = [
      [200, 202, 400, 413],
      [200, 404],
      [200, 400, 204],
      [409, 404],
      [200, 404, 200, 400],
      [200, 202, 400, 404],
      [200, 400, 404, 400, 200, 404],
      [200, 400, 404],
      [200, 201, 200, 400],
      [404, 404, 404, 404],
      [200, 400, 200, 404],
    ];
    expect(statuses).toEqual(expected.flat());
  });

  it("is a page that runs nothing from elsewhere", async () => {
    const page = await fetch(`${ingress.url}/docs`);
    expect(page.status).toBe(200);
    expect(page.headers.get("content-security-policy")).toMatch(
      /^default-src 'none'; connect-src 'self'; script-src 'sha256-/,
    );
    expect(await page.text()).not.toMatch(/https?:\/\//);
  });
});

/** A schema that stands alone, with those it refers to. */
function standing(schema: object, schemas: Record<string, object>): object {
  const all = JSON.stringify({ ...schema, $defs: schemas }).replaceAll(
    "#/components/schemas/",
    "#/$defs/",
  );
  return JSON.parse(all) as object;
}
