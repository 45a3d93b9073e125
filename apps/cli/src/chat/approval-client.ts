import { ApiApprovals, jsonParserOf, type ApiApproval, type ApiDecision } from "@larkline/protocol";

export interface ApprovalClientOptions {
  /** Base address of the ingress. */
  url: string;
  /** Sent as bearer token when given. */
  token?: string;
  sessionId: string;
  /** How long one request may take; default 10 s. */
  timeoutMs?: number;
}

/** `taken`: it counts. `closed`: decided before, or expired. `not_allowed`: others have to. `failed`: try again. */
export type DecideResult = "taken" | "closed" | "not_allowed" | "failed";

/** What a session waits for, and how to decide about it. Nothing here throws. */
export interface ApprovalClient {
  /** Oldest first; none when it cannot be known now. */
  pending(signal: AbortSignal): Promise<ApiApproval[]>;
  decide(id: string, decision: ApiDecision, signal: AbortSignal): Promise<DecideResult>;
}

const parseApprovals = jsonParserOf(ApiApprovals);

const resultOf: Readonly<Record<number, DecideResult>> = {
  200: "taken",
  403: "not_allowed",
  404: "closed",
  409: "closed",
};

/** Creates a client of the approvals of one conversation. */
export function createApprovalClient(options: ApprovalClientOptions): ApprovalClient {
  const { url, token, sessionId, timeoutMs = 10_000 } = options;
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const within = (signal: AbortSignal): AbortSignal => AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);

  return {
    async pending(signal) {
      try {
        const address = new URL(`/v1/approvals?session_id=${sessionId}`, url);
        const response = await fetch(address, { headers, signal: within(signal) });
        const parsed = parseApprovals(await response.text());
        return parsed.ok ? parsed.value.approvals : [];
      } catch {
        return [];
      }
    },
    async decide(id, decision, signal) {
      try {
        const address = new URL(`/v1/approvals/${encodeURIComponent(id)}`, url);
        const body = JSON.stringify(decision);
        const json = { ...headers, "content-type": "application/json" };
        const response = await fetch(address, { method: "POST", headers: json, body, signal: within(signal) });
        await response.body?.cancel();
        return resultOf[response.status] ?? "failed";
      } catch {
        return "failed";
      }
    },
  };
}
