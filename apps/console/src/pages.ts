import type { FastifyReply, FastifyRequest } from "fastify";
import type { Backend } from "./backend.ts";
import { withDeadline } from "./deadline.ts";
import type { Visitors } from "./guard.ts";
import { problemPage } from "./problem-page.ts";
import { documentOf, viewOf, type Page, type View } from "./view.ts";

/** What the pages are made from. */
export interface PagesDeps {
  backend: Backend;
  visitorOf: Visitors;
  hasSignIn: boolean;
  /** How long the store may take for one page. */
  deadlineMs: number;
  /** An operator did something. */
  onAction(action: string, path: string): void;
}

/** Sends a page as a whole document. */
export async function sendPage(reply: FastifyReply, view: View, page: Page): Promise<FastifyReply> {
  return await reply.type("text/html; charset=utf-8").send(documentOf(view, page));
}

/** Answers with the page that `make` reads, or says that there is nothing of the kind. */
export async function answerPage(
  { visitorOf, hasSignIn, deadlineMs }: PagesDeps,
  [request, reply]: [FastifyRequest, FastifyReply],
  make: (view: View) => Promise<Page | undefined>,
): Promise<FastifyReply> {
  const view = viewOf(request, visitorOf(request), hasSignIn);
  const page = await withDeadline(make(view), deadlineMs);
  if (page !== undefined) return await sendPage(reply, view, page);
  return await sendPage(reply.code(404), view, problemPage(view, "notFound"));
}

/** One field of a form; undefined when it is missing or longer than it can be. */
export function fieldOf({ body }: FastifyRequest, name: string, maxLength = 300): string | undefined {
  const value = body instanceof URLSearchParams ? body.get(name) : null;
  return value === null || value.length > maxLength ? undefined : value;
}
