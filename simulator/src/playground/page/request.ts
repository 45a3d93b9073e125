/** Posts to the playground's API; a refusal rejects with its reason. Resolves to the answer. */
export async function post(path: string, body: object = {}): Promise<unknown> {
  const response = await fetch(`/api/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(30_000),
  });
  const answer: unknown = await response.json().catch(() => undefined);
  if (response.ok) return answer;
  const reason = typeof answer === "object" && answer !== null && "error" in answer ? answer.error : response.status;
  throw new Error(String(reason));
}

/** What the playground tells about something; undefined when it does not know it or cannot be reached. */
export async function get(path: string): Promise<unknown> {
  try {
    const response = await fetch(path, { signal: AbortSignal.timeout(10_000) });
    return response.ok ? await response.json() : undefined;
  } catch {
    return undefined;
  }
}

/** A file's bytes as base64. Rejects when it cannot be read. */
export async function base64Of(file: Blob): Promise<string> {
  const url = await new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(String(reader.result)));
    reader.addEventListener("error", () => reject(reader.error ?? new Error("The file cannot be read")));
    reader.readAsDataURL(file);
  });
  return url.slice(url.indexOf(",") + 1);
}
