/** A caller of the open API for tests: a bearer token and JSON in and out. */
export interface TestClient {
  token: string;
  call(method: string, path: string, body?: unknown): Promise<TestAnswer>;
}

export interface TestAnswer {
  status: number;
  code: number;
  body: Record<string, unknown>;
  data: Record<string, unknown>;
  headers: Headers;
}

/** Gets a token for the app and calls with it. */
export async function connectTestClient(
  url: string,
  app: { appId: string; appSecret: string },
): Promise<TestClient> {
  const answer = await callOpenApi(url, {
    method: "POST",
    path: "/open-apis/auth/v3/tenant_access_token/internal",
    body: { app_id: app.appId, app_secret: app.appSecret },
  });
  const token = String(answer.body.tenant_access_token);
  return {
    token,
    call: (method, path, body) => callOpenApi(url, { method, path, body, token }),
  };
}

/** One call; an answer of any status resolves. */
export async function callOpenApi(
  url: string,
  { method, path, body, token }: { method: string; path: string; body?: unknown; token?: string },
): Promise<TestAnswer> {
  const response = await fetch(url + path, {
    method,
    headers: {
      "content-type": "application/json; charset=utf-8",
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(60_000),
  });
  const parsed = asObject(await response.json());
  return {
    status: response.status,
    code: Number(parsed.code),
    body: parsed,
    data: asObject(parsed.data),
    headers: response.headers,
  };
}

function asObject(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? { ...value } : {};
}
