import type { SimApp } from "./apps.ts";
import { type ApiRoute, type ApiCallContext, panelPath } from "./api-route.ts";
import {
  type JsonObject,
  PlatformError,
  success,
  stringField,
  fieldError,
  newId,
  isJsonObject,
} from "./open-api.ts";

const maxPanelCommands = 100;

/** A command of an app's panel ("Agent supports slash commands"). */
interface PanelCommand {
  command_id: string;
  command: string;
  description: JsonObject;
}

/** The commands that clients show after a slash, by app. */
export function commandPanelRoutes(): ApiRoute[] {
  const panels = new Map<string, PanelCommand[]>();
  const panelOf = (app: SimApp): PanelCommand[] => {
    const panel = panels.get(app.appId) ?? [];
    panels.set(app.appId, panel);
    return panel;
  };
  const existing = ({ app, params }: ApiCallContext): PanelCommand => {
    const found = panelOf(app).find(({ command_id: id }) => id === params.command_id);
    if (found === undefined) throw new PlatformError(40000404, "the command does not exist");
    return found;
  };
  return [
    { method: "GET", path: panelPath, handle: ({ app }) => success({ items: panelOf(app) }) },
    {
      method: "POST",
      path: panelPath,
      handle({ app, body }) {
        const panel = panelOf(app);
        const command = stringField(body, "command");
        if (/[\s/]/.test(command)) throw fieldError("command", "has no slash and no blank");
        if (panel.some((one) => one.command === command)) {
          throw new PlatformError(40000000, "command already exists");
        }
        if (panel.length >= maxPanelCommands) {
          throw new PlatformError(40000000, "too many commands");
        }
        const created = { command_id: newId("cmd_"), command, description: panelDescription(body) };
        panel.push(created);
        return success({ command_id: created.command_id });
      },
    },
    {
      method: "PATCH",
      path: `${panelPath}/:command_id`,
      handle(call) {
        existing(call).description = panelDescription(call.body);
        return success({});
      },
    },
    {
      method: "DELETE",
      path: `${panelPath}/:command_id`,
      handle(call) {
        const panel = panelOf(call.app);
        panel.splice(panel.indexOf(existing(call)), 1);
        return success({});
      },
    },
  ];
}

function panelDescription(body: JsonObject): JsonObject {
  const { description } = body;
  if (!isJsonObject(description)) throw fieldError("description", "is required");
  stringField(description, "default_value");
  return description;
}
