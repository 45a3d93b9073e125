/** Posts to the playground's API; a refusal rejects with its reason. */
export async function post(path: string, body: object = {}): Promise<void> {
  const response = await fetch(`/api/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(10_000),
  });
  if (response.ok) return;
  const answer: unknown = await response.json().catch(() => undefined);
  const reason = typeof answer === "object" && answer !== null && "error" in answer ? answer.error : response.status;
  throw new Error(String(reason));
}
