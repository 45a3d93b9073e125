import { useDeployment } from "./cards-deployment.ts";
import "./cards-long-answers.suite.ts";
import "./cards-stop.suite.ts";
import "./cards-outage.suite.ts";
import "./cards-many-chats.suite.ts";
import "./cards-crash.suite.ts";

useDeployment();
