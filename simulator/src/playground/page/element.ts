/** Attributes of an element; `false` and undefined leave an attribute out, `on…` adds a listener. */
export type Attributes = Readonly<Record<string, string | boolean | undefined | ((event: Event) => void)>>;
export type Child = Node | string | undefined;

/** Builds an element. Text only ever becomes a text node. */
export function element<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  children: readonly Child[] = [],
): HTMLElementTagNameMap[Tag] {
  const built = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") built.addEventListener(name.slice(2), value);
    else if (value === true) built.setAttribute(name, "");
    else if (typeof value === "string") built.setAttribute(name, value);
  }
  for (const child of children) if (child !== undefined) built.append(child);
  return built;
}

/** A button that does not submit. */
export function button(label: string, attributes: Attributes, onclick: () => void): HTMLButtonElement {
  return element("button", { type: "button", ...attributes, onclick }, [label]);
}
