//! Protocol methods by name, each with typed parameters and a typed result.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use gantry_link::{Link, Request};
use gantry_protocol::{ErrorCode, RawJson, WireError, raw};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::identity::Identity;

/// The caller of a method and its connection. Events go out over the link.
#[derive(Clone)]
pub struct MethodContext {
    pub identity: Identity,
    pub link: Link,
    /// Identifies the connection within this process.
    pub connection: u64,
}

type Handler =
    Arc<dyn Fn(MethodContext, Request) -> BoxFuture<'static, Result<RawJson, WireError>> + Send + Sync>;

/// Methods that the gateway answers itself.
const GATEWAYS: [&str; 7] = ["connect", "tool.", "tools.", "results.", "nodes.", "tokens.", "gateway."];

/// Two domains, or a domain and the gateway, answer the same method.
#[derive(Debug, PartialEq, Eq)]
pub struct DuplicateMethod(pub String);

/// The methods of one domain, or of all.
#[derive(Clone, Default)]
pub struct Methods {
    handlers: BTreeMap<&'static str, Handler>,
}

impl Methods {
    /// Answers a method for every client. The handler decides what its caller may see.
    pub fn on<S, P, R, F, Fut>(mut self, name: &'static str, state: &Arc<S>, handler: F) -> Methods
    where
        S: Send + Sync + 'static,
        P: DeserializeOwned + Send + 'static,
        R: Serialize,
        F: Fn(Arc<S>, MethodContext, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, WireError>> + Send + 'static,
    {
        let (state, handler) = (state.clone(), Arc::new(handler));
        let handler: Handler = Arc::new(move |context, request| {
            let (state, handler) = (state.clone(), handler.clone());
            Box::pin(async move {
                let params = request.parse()?;
                // The input may be large and is not kept in two forms.
                drop(request);
                handler(state, context, params).await.map(|result| raw(&result))
            })
        });
        self.handlers.insert(name, handler);
        self
    }

    /// Answers a method for the operator alone.
    pub fn on_operator<S, P, R, F, Fut>(self, name: &'static str, state: &Arc<S>, handler: F) -> Methods
    where
        S: Send + Sync + 'static,
        P: DeserializeOwned + Send + 'static,
        R: Serialize,
        F: Fn(Arc<S>, MethodContext, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, WireError>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        self.on(name, state, move |state, context: MethodContext, params: P| {
            let handler = handler.clone();
            async move {
                if !context.identity.is_operator() {
                    let message = format!("only the operator may call {name}");
                    return Err(WireError::new(ErrorCode::Forbidden, message));
                }
                handler(state, context, params).await
            }
        })
    }

    /// Adds the methods of another domain. Those of the gateway itself belong to no domain.
    pub fn merge(mut self, other: Methods) -> Result<Methods, DuplicateMethod> {
        for (name, handler) in other.handlers {
            let is_gateways = GATEWAYS.iter().any(|own| name.starts_with(own));
            if self.handlers.insert(name, handler).is_some() || is_gateways {
                return Err(DuplicateMethod(name.to_owned()));
            }
        }
        Ok(self)
    }

    /// Answers a request, or gives it back when no domain answers its method.
    pub fn answer(
        &self,
        context: MethodContext,
        request: Request,
    ) -> Result<BoxFuture<'static, Result<RawJson, WireError>>, Request> {
        match self.handlers.get(request.method.as_str()) {
            Some(handler) => Ok(handler(context, request)),
            None => Err(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_domains_cannot_answer_one_method() {
        async fn nothing(_: Arc<()>, _: MethodContext, (): ()) -> Result<(), WireError> {
            Ok(())
        }
        let one = || Methods::default().on("toy.list", &Arc::new(()), nothing);
        let other = Methods::default().on("toy.add", &Arc::new(()), nothing);
        assert!(one().merge(other).is_ok());
        assert_eq!(one().merge(one()).err(), Some(DuplicateMethod("toy.list".into())));
        let gateways = Methods::default().on("tokens.add", &Arc::new(()), nothing);
        assert_eq!(one().merge(gateways).err(), Some(DuplicateMethod("tokens.add".into())));
    }
}
