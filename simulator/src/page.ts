import { fieldError } from "./platform-error.ts";

export interface Page<Item> {
  items: Item[];
  has_more: boolean;
  page_token: string;
}

/** Cuts one page of a list by `page_size` (at most `maximum`) and `page_token`. */
export function pageOf<Item>(all: readonly Item[], query: URLSearchParams, maximum: number): Page<Item> {
  const size = Number(query.get("page_size") ?? 20);
  if (!Number.isInteger(size) || size < 1 || size > maximum) throw fieldError("page_size", `must be 1 to ${maximum}`);
  const start = Number(query.get("page_token") || 0);
  if (!Number.isInteger(start) || start < 0) throw fieldError("page_token", "is invalid");
  const next = start + size;
  const more = next < all.length;
  return { items: all.slice(start, next), has_more: more, page_token: more ? String(next) : "" };
}
